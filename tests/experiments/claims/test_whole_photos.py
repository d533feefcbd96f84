"""Claims with whole networks on photos: the recipes of both arms, the chosen rates, a run that continues."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from tests.photos import save_products
from unseen.cli import main as cli
from unseen.experiments.claims import whole_runner
from unseen.experiments.claims.claim import claims
from unseen.experiments.claims.results import read
from unseen.experiments.claims.run import arms_of
from unseen.experiments.claims.state import whole_state_of
from unseen.experiments.claims.whole_photos import (
    COMMITTED,
    WholeResults,
    changes_of,
    definition,
    whole_photos,
)
from unseen.frozen.head import head
from unseen.networks.published_network import timm
from unseen.runtime.errors import UserError

CLAIMS = """
networks: {small: {name: test_resnet.r160_in1k, size: 64}}
setting: {training.iterations: 150}
arms:
  average: {like: ms, dim: 8, pooling.name: average}
  max: {like: ms, dim: 8, pooling.name: max}
  elsewhere: {like: ms, dim: 4, pooling.name: max}
claims:
  pooling: {paper: gsp, item: table 2, statement: x, first: average, second: max, networks: [small]}
  timing: {paper: gsp, item: table 2, statement: x, first: average, second: elsewhere, networks: [small]}
"""
SETTING = """
networks:
  small:
    network: {name: test_resnet.r160_in1k, size: 32}
    floor: elsewhere
    recipe: {optimizer.learning_rate: 0.001}
    rates: {slow: {optimizer.multipliers.head: 1.0e-9}, fast: {optimizer.multipliers.head: 1.0}}
recipe:
  batch: {classes: 4, images_per_class: 2}
  training.iterations: 3
  training.validate_every: 3
  training.threads: 1
  training.start: principal
arms: {}
excluded: {timing: It is about time.}
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "claims.yaml").write_text(CLAIMS)
    (tmp_path / "whole.yaml").write_text(SETTING)
    content, setting = claims(tmp_path / "claims.yaml"), whole_photos(tmp_path / "whole.yaml")
    monkeypatch.setattr("unseen.cli.claims.claims", lambda: content)
    monkeypatch.setattr("unseen.cli.claims.whole_photos", lambda: setting)
    for name, photos in (("one", 3), ("two", 4)):
        save_products(tmp_path / name, 48, photos)
    torch.manual_seed(0)
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "w.safetensors")
    yield tmp_path
    claims.cache_clear()
    whole_photos.cache_clear()


def test_both_arms_of_each_claim_have_one_budget_and_differ() -> None:
    content, setting = claims(), whole_photos()
    assert setting.excluded.keys() <= content.claims.keys()
    for name in content.claims.keys() - setting.excluded.keys():
        claim = content.claims[name]
        network = claim.networks[0]
        for rate in setting.networks[network].rates:
            first, second = (
                head(
                    content.arms[arm]["like"], changes=changes_of(content, setting, arm, network, rate)
                ).recipe()
                for arm in arms_of(claim)
            )
            assert first != second
            for schedule in (first.schedule, second.schedule):
                assert (schedule.name, schedule.warmup) == ("cosine", 5)
            for field in ("batch", "optimizer"):
                assert getattr(first, field) == getattr(second, field), name
            for field in ("size", "resize", "crop_scale", "crop_ratio", "flip"):
                assert getattr(first.input, field) == getattr(second.input, field), name
            steps = {each.training.iterations for each in (first, second)} - {0}
            times = 4 if name.endswith("-long") else 1
            assert steps == {times * setting.recipe["training.iterations"]}


def test_definition_depends_on_recipes_rates_and_network() -> None:
    content, setting = claims(), whole_photos()
    before = definition(content, setting, "crt-over-ms")
    own = setting.networks["mobilenetv2"]
    network = own.network.model_copy(update={"size": 97})
    for change in (
        {"recipe": setting.recipe | {"training.iterations": 41}},
        {"arms": setting.arms | {"crt": {}}},
        {"networks": setting.networks | {"mobilenetv2": own.model_copy(update={"rates": {"x1": {}}})}},
        {"networks": setting.networks | {"mobilenetv2": own.model_copy(update={"network": network})}},
        {"networks": setting.networks | {"mobilenetv2": own.model_copy(update={"floor": "multihead"})}},
    ):
        assert definition(content, setting.model_copy(update=change), "crt-over-ms") != before
    assert definition(content, setting.model_copy(update={"excluded": {}}), "crt-over-ms") == before


@pytest.mark.slow
def test_trains_whole_networks_and_continues(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    revision = SimpleNamespace(commit=40 * "c")
    monkeypatch.setattr("unseen.experiments.claims.whole_photos.revision_of", lambda folder: revision)
    options = ["--whole", "--splits", "2", "--seeds", "2", "--output", str(tiny / "out")]
    options += ["--photos", str(tiny / "one"), "--photos", str(tiny / "two")]
    options += ["--weights", f"small={tiny / 'w.safetensors'}"]
    cli.main(["claims", *options])
    printed = capsys.readouterr()
    assert "claims: 24 trainings with 576 images" in printed.err
    assert "rate of average: 4 trainings with 96 images" in printed.err
    results = read(tiny / "out/whole.json", WholeResults)
    assert results.claims.keys() == {"pooling"}
    splits = ["one-1", "one-2", "two-1", "two-2"]
    assert [cell.split for cell in results.claims["pooling"].cells] == splits
    assert results.test_classes == dict.fromkeys(splits, 16)
    assert [floor.split for floor in results.floors] == splits
    assert results.rates.keys() == {"small/average", "small/max"}
    assert results.at_rates["pooling"].keys() == {"slow", "fast"}
    assert results.photos == 48 * (3 + 4)
    assert results.commit == 40 * "c"
    records = sorted((tiny / "out/records").iterdir())
    assert len(records) == 4 + 2 * 2 * 2 + 2 * 4 * 2, "floors; arms x rates x sets; arms x splits x seeds"
    assert not list((tiny / "out").rglob("data/models/*/*/*"))
    for path in records:
        assert str(tiny) not in path.read_text()
    settings = [json.loads(path.read_bytes())["settings"] for path in records]
    floors = [each["recipe"] for each in settings if each["network"] == "features"]
    assert [each["dim"] for each in floors] == 4 * [4], "of the arm of the setting, not of a claim"

    monkeypatch.setattr(whole_runner, "_computed", None)  # every record exists
    cli.main(["claims", "pooling", *options])
    assert read(tiny / "out/whole.json", WholeResults) == results


@pytest.mark.slow
def test_processes_give_the_same_records(tiny: Path) -> None:
    texts = []
    for jobs in ("1", "2"):
        output = tiny / jobs
        options = ["--whole", "--photos", str(tiny / "one"), "--seeds", "2", "--splits", "1", "-j", jobs]
        weights = f"small={tiny / 'w.safetensors'}"
        cli.main(["claims", *options, "--weights", weights, "--output", str(output)])
        text = read(output / "whole.json", WholeResults)
        texts.append(text.model_copy(update={"cpu_seconds": 0}))
    assert texts[0] == texts[1]


def test_refuses_options_of_heads_and_an_excluded_claim(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = ["--photos", str(tiny / "one")]
    for arguments, message in (
        (["timing", "--whole", *photos], "timing is not compared with whole networks: It is about time."),
        (["--whole", *photos, "--groups", "g.csv"], "leave out --groups"),
        ([*photos, *photos], "heads on a frozen network take one --photos"),
        (["--whole"], "--photos is missing"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["claims", "--output", str(tiny / "out"), *arguments])
        assert message in capsys.readouterr().err
    assert not (tiny / "out").exists()


def test_refuses_a_network_without_rates(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(SETTING.replace("rates: {slow", "rats: {slow"))
    with pytest.raises(UserError, match=r"networks\.small\.rates: Field required"):
        whole_photos(path)


def test_the_committed_verdicts_belong_to_the_recipes() -> None:
    results = read(COMMITTED, WholeResults)
    for name, result in results.claims.items():
        assert whole_state_of(name, results) == result.verdict
        assert set(results.at_rates[name]) == set(
            whole_photos().networks[claims().claims[name].networks[0]].rates
        )
    assert results.claims
