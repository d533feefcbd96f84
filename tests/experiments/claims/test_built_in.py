"""Claims with whole networks: the recipes of both arms, a run on drawn images, the excluded claims."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tools.docs.claims import built_in_state_of
from unseen.cli import main as cli
from unseen.experiments.claims.built_in import COMMITTED, built_in, definition, whole
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.results import load
from unseen.experiments.claims.run import arms_of
from unseen.methods.build import initial_method
from unseen.methods.settings import CrtRecipe, Recipe
from unseen.runtime.errors import UserError

CLAIMS = """
networks: {small: {name: test_resnet.r160_in1k, size: 64}}
setting: {training.iterations: 2}
arms: {average: {like: ms, dim: 8, pooling.name: average}, max: {like: ms, dim: 8, pooling.name: max}}
claims:
  pooling: {paper: gsp, item: table 2, statement: x, first: average, second: max, networks: [small]}
  timing: {paper: gsp, item: table 2, statement: x, first: average, second: max, networks: [small]}
"""
SETTING = """
source: {kind: parts, train_classes: 4, test_classes: 3, images_per_class: 3, size: [24, 32]}
recipe:
  backbone.arguments.output_stride: 32
  input.size: 16
  batch.classes: 2
  batch.images_per_class: 2
  optimizer.learning_rate: 0.01
  schedule.warmup: 0
  training.iterations: 2
  training.validate_every: 2
  training.precision: float32
  training.threads: 1
excluded: {timing: It is about time.}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    (tmp_path / "built_in.yaml").write_text(SETTING)
    content, setting = claims(tmp_path / "claims.yaml"), built_in(tmp_path / "built_in.yaml")
    monkeypatch.setattr("unseen.cli.claims.claims", lambda: content)
    monkeypatch.setattr("unseen.cli.claims.built_in", lambda: setting)
    yield tmp_path
    claims.cache_clear()
    built_in.cache_clear()


def test_both_arms_of_each_claim_have_one_network_budget_and_optimizer() -> None:
    content, setting = claims(), built_in()
    assert setting.excluded.keys() <= content.claims.keys()
    for name in content.claims.keys() - setting.excluded.keys():
        first, second = (whole(content, setting, arm).recipe() for arm in arms_of(content.claims[name]))
        assert first != second
        for recipe in (first, second):
            assert recipe.backbone.name == ("test_vit" if name.startswith("irt") else "test_resnet")
            assert not recipe.backbone.pretrained
            assert recipe.training.protocol == "published"
        for field in ("input", "batch", "optimizer"):
            assert getattr(first, field) == getattr(second, field), name
        assert _dim(first) == _dim(second), name
        assert first.backbone.arguments == second.backbone.arguments
        assert first.training.iterations == second.training.iterations
        assert first.schedule.warmup == second.schedule.warmup


def _dim(recipe: Recipe) -> int | None:
    return recipe.embedding.dim if isinstance(recipe, CrtRecipe) else recipe.dim


@pytest.mark.slow
def test_the_network_of_every_arm_embeds_images() -> None:
    content, setting = claims(), built_in()
    compared = content.claims.keys() - setting.excluded.keys()
    for arm in {arm for name in compared for arm in arms_of(content.claims[name])}:
        recipe = whole(content, setting, arm).recipe()
        method = initial_method(recipe, setting.source.train_classes, 64, 0).eval()
        with torch.no_grad():
            vectors = method.embed(torch.rand(2, 3, recipe.input.size, recipe.input.size))
        assert vectors.shape == (2, method.dim)
        assert torch.isfinite(vectors).all()


def test_definition_depends_on_the_images_and_recipes() -> None:
    content, setting = claims(), built_in()
    before = definition(content, setting, "crt-over-ms")
    source = setting.source.model_copy(update={"test_classes": 33})
    recipe = setting.recipe | {"training.iterations": 81}
    for change in ({"source": source}, {"recipe": recipe}):
        assert definition(content, setting.model_copy(update=change), "crt-over-ms") != before


@pytest.mark.slow
def test_trains_whole_networks(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["claims", "--built-in", "--seeds", "2", "--output", str(tiny / "out")])
    printed = capsys.readouterr().out
    results = load(tiny / "out/built_in.json")
    assert results.claims.keys() == {"pooling"}
    (cell,) = results.claims["pooling"].cells
    assert (cell.network, cell.split) == ("test_resnet", "parts")
    assert cell.difference == pytest.approx(cell.second - cell.first, abs=2e-5)
    assert cell.low is None
    assert results.claims["pooling"].verdict == "too few classes to decide"
    assert "too few classes to decide" in printed
    assert [(floor.network, floor.split) for floor in results.floors] == [("test_resnet", "parts")]
    assert (results.photos, results.test_classes) == (21, {"parts": 3})
    records = list((tiny / "out/records").iterdir())
    assert len(records) == 6, "two arms and the untrained network, with two seeds"
    assert not list((tiny / "out").rglob("*.safetensors"))


def test_refuses_an_excluded_claim_and_options_of_photos(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        (["timing"], "timing is not compared with whole networks: It is about time."),
        (["poling"], "There is no claim poling"),
        (["--photos", str(tiny)], "leave out --photos"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["claims", "--built-in", "--output", str(tiny / "out"), *arguments])
        assert message in capsys.readouterr().err
    assert not (tiny / "out").exists()


def test_refuses_a_wrong_setting(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SETTING.replace("kind: parts", "kind: pards"))
    with pytest.raises(UserError, match=r"source\.kind"):
        built_in(path)


def test_the_committed_verdicts_belong_to_the_recipes() -> None:
    results = load(COMMITTED)
    for name in results.claims:
        assert built_in_state_of(name, results) == results.claims[name].verdict
    for name in built_in().excluded:
        assert built_in_state_of(name, results) == "-"
