"""Resolution of recipes: the order of the layers, and what a mistake in params.yaml is answered with."""

from pathlib import Path
from typing import get_args

import pytest

from pipeline.config import IngestSettings, Params, RunSettings, Source, SweepSettings, TrainSettings, dataset_settings, resolve, settings
from pipeline.config.strict import Strict
from pipeline.runtime.errors import UserError

TEXT = """\
run: {datasets: [tiny], methods: [gsp], seeds: [0]}
ingest: {resize: 64}
train: {workers: 2}
methods:
  gsp:
    method: gsp
    pooling:
      transport_ratio: 0.3
      epsilon: 5.0
  multihead: {method: multihead}
  nameless: {dim: 64}
datasets:
  tiny:
    source: {kind: folder, path: photos}
    recipe:
      backbone: {name: test_resnet}
      optimizer: {learning_rate: 0.01}
      loss: {name: contrastive, margin: 0.2}
    recipes:
      gsp:
        pooling: {epsilon: 0.5}
      multihead:
        loss: {name: multi_similarity, beta: 40.0}
      nameless: {}
"""


def params(tmp_path: Path, text: str = TEXT) -> Params:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return Params(path)


def test_later_layers_win_and_leave_the_rest(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "gsp")
    assert recipe.pooling.transport_ratio == 0.3  # methods.gsp
    assert recipe.pooling.epsilon == 0.5  # datasets.tiny.recipes.gsp over methods.gsp
    assert recipe.optimizer.learning_rate == 0.01  # datasets.tiny.recipe over the published default
    assert recipe.optimizer.weight_decay == 5e-4  # published default
    assert recipe.backbone.name == "test_resnet"
    assert resolve(params(tmp_path), "tiny", "gsp", {"pooling.epsilon": 7.0}).pooling.epsilon == 7.0


def test_a_published_default_survives_a_sibling(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "multihead")
    assert recipe.backbone.name == "test_resnet"
    assert recipe.backbone.stages == (-2, -1)


def test_another_network_drops_what_belongs_to_one_network_alone(tmp_path: Path) -> None:
    text = TEXT.replace("{name: test_resnet}", "{name: test_resnet, arguments: {output_stride: 8}, pretrained: false}")
    assert resolve(params(tmp_path, text), "tiny", "gsp").backbone.arguments == {"output_stride": 8}
    other = resolve(params(tmp_path, text), "tiny", "gsp", {"backbone.name": "test_vit"}).backbone
    assert (other.name, other.arguments, other.pretrained) == ("test_vit", {}, False)
    same = resolve(params(tmp_path, text), "tiny", "gsp", {"backbone.arguments": {"in_chans": 3}}).backbone
    assert same.arguments == {"output_stride": 8, "in_chans": 3}


def test_another_part_drops_the_fields_of_the_one_it_replaces(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "gsp")
    assert recipe.loss.name == "contrastive"
    assert recipe.loss.margin == 0.2
    again = resolve(params(tmp_path), "tiny", "multihead").loss
    assert (again.name, again.beta, again.alpha) == ("multi_similarity", 40.0, 2.0)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "transport_ratio: 0.3",
            "transport_ration: 0.3",
            ["params.yaml:8", "methods.gsp.pooling.transport_ration is not a setting", "transport_ratio?"],
        ),
        ("{epsilon: 0.5}", "{epsilon: -1}", ["params.yaml:21", "datasets.tiny.recipes.gsp.pooling.epsilon", "greater than 0", "-1"]),
        ("learning_rate: 0.01", "learning_rate: fast", ["params.yaml:17", "optimizer.learning_rate", "fast"]),
        ("name: contrastive, ", "name: contrastiv, ", ["params.yaml:18", "loss.name is 'contrastiv'", "Did you mean contrastive?", "proxy_anchor"]),
        ("{epsilon: 0.5}", "{prototypes: 4, initialization_memory: 5}", ["params.yaml:21", "initialization_memory"]),
        ("      gsp:\n        pooling: {epsilon: 0.5}", "      gsp: sharp", ["params.yaml:20", "recipes.gsp must be a block", "'sharp'"]),
        ("    method: gsp", "    method: gps", ["methods.gsp", "'gps'", "baseline, crt, multihead, gsp, irt"]),
        ("recipes:\n      gsp:", "recipes:\n      gspp:", ["datasets.tiny.recipes.gsp is missing"]),
        ("ingest: {", "ingest: {{", ["params.yaml:3", "not valid YAML"]),
    ],
)
def test_a_mistake_is_named_with_its_line_and_key(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        resolve(params(tmp_path, TEXT.replace(old, new, 1)), "tiny", "gsp")
    for part in expected:
        assert part in str(caught.value)


def test_unknown_names_are_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no datasets\.tinny[^\n]*\n.*Did you mean tiny"):
        resolve(params(tmp_path), "tinny", "gsp")
    with pytest.raises(UserError, match=r"no methods\.triplet[^\n]*\n.*gsp, multihead"):
        resolve(params(tmp_path), "tiny", "triplet")
    with pytest.raises(UserError, match=r"methods\.nameless: `method` must be one of"):
        resolve(params(tmp_path), "tiny", "nameless")


def test_blocks_of_stages(tmp_path: Path) -> None:
    source, ingest = dataset_settings(params(tmp_path), "tiny")
    assert (source.kind, source.path, source.test_share) == ("folder", "photos", 0.5)
    assert ingest == IngestSettings(resize=64)
    assert settings(params(tmp_path), "train", TrainSettings).workers == 2
    assert settings(params(tmp_path), "run", RunSettings).seeds == (0,)
    with pytest.raises(UserError, match=r"params\.yaml:3: train\.worker is not a setting[^\n]*\n.*Did you mean workers"):
        settings(params(tmp_path, TEXT.replace("workers: 2", "worker: 2")), "train", TrainSettings)
    with pytest.raises(UserError, match=r"params\.yaml:14: datasets\.tiny\.source\.pth is not a setting[^\n]*\n.*Did you mean path"):
        dataset_settings(params(tmp_path, TEXT.replace("path: photos", "path: photos, pth: photos")), "tiny")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{kind: folder, path: photos}", "photos", ["params.yaml:14", "datasets.tiny.source", "'photos'"]),
        ("kind: folder", "kind: foldr", ["params.yaml:14", "datasets.tiny.source.kind is 'foldr'", "Did you mean folder?", "cub, cars, sop"]),
        ("kind: folder, ", "", ["params.yaml:14", "datasets.tiny.source.kind is missing"]),
        ("{kind: folder, path: photos}", "{kind: folder}", ["params.yaml:14", "datasets.tiny.source.path is missing"]),
    ],
)
def test_a_source_that_is_none_is_named(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        dataset_settings(params(tmp_path, TEXT.replace(old, new, 1)), "tiny")
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", get_args(get_args(Source)[0]), ids=lambda kind: kind.__name__)
def test_a_misspelt_field_of_any_source_is_answered_with_the_known_ones(tmp_path: Path, kind: type[Strict]) -> None:
    """A source that resolve.py does not know would answer with no field at all."""
    name, known = kind.model_fields["kind"].default, next(field for field in kind.model_fields if field != "kind")
    needed = "path: photos, " if name == "folder" else ""
    wrong = TEXT.replace("{kind: folder, path: photos}", f"{{kind: {name}, {needed}{known}s: 1}}")
    with pytest.raises(UserError, match=rf"params\.yaml:14: datasets\.tiny\.source\.{known}s is not a setting[^\n]*\n.*Did you mean {known}\?"):
        dataset_settings(params(tmp_path, wrong), "tiny")


@pytest.mark.parametrize("domain", [{"grid": []}, {"uniform": [2, 1]}, {"grid": [1], "choice": [2]}, {"normal": [0, 1]}, {"loguniform": [1, 2, 3]}])
def test_a_sweep_over_nothing_sensible_is_refused(domain: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match=r"pooling\.epsilon"):
        SweepSettings(space={"pooling.epsilon": domain}, iterations=10)


def test_a_stage_is_held_to_the_params_that_dvc_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "params.yaml").write_text(TEXT, encoding="utf-8")
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  train:\n    matrix: {dataset: [tiny], method: [gsp]}\n    cmd: x\n"
        "    params: ['methods.${item.method}', 'datasets.${item.dataset}.recipe']\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_STAGE", "train@tiny-gsp")
    held = Params.of_stage()
    assert held.read("methods.gsp.pooling.epsilon") == 5.0
    with pytest.raises(UserError, match=r"train@tiny-gsp reads train\.workers"):
        held.read("train.workers")
    with pytest.raises(UserError, match=r"datasets\.tiny\.recipes\.gsp"):
        resolve(held, "tiny", "gsp")
    assert held.keys[0] == "methods.gsp.pooling.epsilon"
