"""Resolution of recipes: the order of the layers, and the errors for mistakes in params.yaml."""

from pathlib import Path
from typing import get_args

import pytest

from tests.params import write
from unseen.config.definitions import layers_of
from unseen.config.document import Params
from unseen.config.resolve import dataset_settings, resolve, settings, sweep_settings
from unseen.config.stages import RunSettings, SweepSettings, TrainSettings
from unseen.data.ingest.settings import IngestSettings, Source
from unseen.experiments.catalogue import with_rows
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

TEXT = """\
run: {datasets: [tiny], methods: [mine], seeds: [0]}
ingest: {resize: 64}
train: {workers: 2}
methods:
  mine:
    method: gsp
    pooling:
      transport_ratio: 0.3
      epsilon: 5.0
  soft:
    like: mine
    pooling: {epsilon: 1.0}
  gsp: {pooling: {transport_ratio: 0.4}}
  gsp-soft: {like: gsp, pooling: {epsilon: 1.0}}
  nameless: {dim: 64}
datasets:
  tiny:
    source: {kind: folder, path: photos}
    recipe:
      backbone: {name: test_resnet}
      optimizer: {learning_rate: 0.01}
      loss: {name: contrastive, margin: 0.2}
    methods:
      mine:
        pooling: {epsilon: 0.5}
      multihead:
        loss: {name: multi_similarity, beta: 40.0}
"""
CONTRASTIV = "loss.name 'contrastiv'"
UNKNOWN_LOSS = ["params.yaml:22", "unknown", CONTRASTIV, "Did you mean contrastive?", "proxy_anchor"]
FOLDR = "unknown datasets.tiny.source.kind 'foldr'"
UNKNOWN_KIND = ["params.yaml:18", FOLDR, "Did you mean folder?", "cub, cars, sop"]


def params(tmp_path: Path, text: str = TEXT) -> Params:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return Params(path)


def test_later_layers_override_only_their_own_values(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "mine")
    assert recipe.pooling.transport_ratio == 0.3  # methods.mine
    assert recipe.pooling.epsilon == 0.5  # datasets.tiny.methods.mine over methods.mine
    assert recipe.optimizer.learning_rate == 0.01  # datasets.tiny.recipe over the published default
    assert recipe.optimizer.weight_decay == 1e-4  # pipeline/recipes/datasets/folder.yaml
    assert recipe.optimizer.nesterov is False  # published default
    assert recipe.training.iterations == 2000  # pipeline/recipes/datasets/folder.yaml: the kind of the source
    assert recipe.backbone.name == "test_resnet"
    assert resolve(params(tmp_path), "tiny", "mine", {"pooling.epsilon": 7.0}).pooling.epsilon == 7.0


def test_a_change_of_a_user_overrides_every_published_layer(tmp_path: Path) -> None:
    """Published changes for one data set and one method are below a change for all data sets."""
    assert resolve(params(tmp_path, "methods: {}"), "inshop", "gsp").pooling.prototypes == 128
    changed = params(tmp_path, "methods: {gsp: {pooling: {prototypes: 16}}}")
    for dataset in ("inshop", "cub", "parts", "tokens"):
        assert resolve(changed, dataset, "gsp").pooling.prototypes == 16, dataset


def test_a_change_keeps_the_published_default_of_a_sibling(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "multihead")
    assert recipe.backbone.name == "test_resnet"
    assert recipe.backbone.stages == (-2, -1)


def test_a_variant_inherits_the_layers_of_its_parent(tmp_path: Path) -> None:
    changed = params(tmp_path)
    soft, parent = resolve(changed, "tiny", "soft"), resolve(changed, "tiny", "mine")
    assert soft.pooling.epsilon == 0.5, "the data set's own change for `mine` is above methods.soft"
    assert soft.pooling == parent.pooling
    for dataset in ("parts", "cub", "inshop"):
        variant, published = (resolve(changed, dataset, name) for name in ("gsp-soft", "gsp"))
        assert variant.pooling.transport_ratio == 0.4, "a user's change of gsp is inherited"
        assert variant.pooling.epsilon == 1.0
        pooling = {"pooling": variant.pooling}
        assert published.model_copy(update=pooling) == variant, dataset


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("methods: {a: {like: b}, b: {like: a}}", "methods.a is like itself: a -> b -> a"),
        ("methods: {a: {like: gps}}", "Did you mean gsp?"),
        ("methods: {gsp: {like: ms}}", "methods.gsp is a published recipe and cannot be like another"),
        ("methods: {gsp: {method: crt}}", "methods.gsp.method: gsp is a gsp recipe, which cannot change"),
    ],
)
def test_refuses_a_variant_without_parent(tmp_path: Path, text: str, expected: str) -> None:
    changed = params(tmp_path, text)
    with pytest.raises(UserError) as caught:
        resolve(changed, "parts", changed.names("methods")[0])
    assert expected in str(caught.value)


def test_every_value_names_the_line_that_sets_it(tmp_path: Path) -> None:
    changed = params(tmp_path)
    assert (
        layers_of(changed, "tiny", "mine")
        .origin("pooling.epsilon")
        .endswith("params.yaml:25, datasets.tiny.methods.mine")
    )
    assert (
        layers_of(changed, "tiny", "mine")
        .origin("training.iterations")
        .startswith("pipeline/recipes/datasets/folder.yaml:")
    )
    assert (
        layers_of(changed, "parts", "gsp_xbm")
        .origin("memory.size")
        .startswith("pipeline/recipes/datasets/parts.yaml:")
    )
    assert (
        layers_of(changed, "cub", "gsp")
        .origin("optimizer.clip_norm")
        .startswith("pipeline/recipes/methods/_mlrc.yaml:")
    )
    assert layers_of(changed, "cub", "gsp").origin("input.size") == "default"
    number = int(layers_of(changed, "inshop", "gsp").origin("pooling.prototypes").rpartition(":")[2])
    line = (
        (Path(__file__).parents[2] / "pipeline/recipes/methods/_gsp.yaml")
        .read_text(encoding="utf-8")
        .splitlines()[number - 1]
    )
    assert line.strip() == "pooling: {prototypes: 128}"


def test_another_network_drops_settings_of_the_previous_one(tmp_path: Path) -> None:
    text = TEXT.replace(
        "{name: test_resnet}", "{name: test_resnet, arguments: {output_stride: 8}, pretrained: false}"
    )
    assert resolve(params(tmp_path, text), "tiny", "mine").backbone.arguments == {"output_stride": 8}
    other_network = resolve(params(tmp_path, text), "tiny", "mine", {"backbone.name": "test_vit"}).backbone
    assert (other_network.name, other_network.arguments, other_network.pretrained) == ("test_vit", {}, False)
    same_network = resolve(
        params(tmp_path, text), "tiny", "mine", {"backbone.arguments": {"in_chans": 3}}
    ).backbone
    assert same_network.arguments == {"output_stride": 8, "in_chans": 3}
    momentum = TEXT.replace("{name: test_resnet}", "{name: test_resnet, batch_norm_momentum: 0.9}")
    assert resolve(params(tmp_path, momentum), "tiny", "mine").backbone.batch_norm_momentum == 0.9
    changed = resolve(params(tmp_path, momentum), "tiny", "mine", {"backbone.name": "test_vit"})
    assert changed.backbone.batch_norm_momentum is None


def test_another_part_drops_the_fields_of_the_replaced_one(tmp_path: Path) -> None:
    recipe = resolve(params(tmp_path), "tiny", "mine")
    assert recipe.loss.name == "contrastive"
    assert recipe.loss.margin == 0.2
    multihead_loss = resolve(params(tmp_path), "tiny", "multihead").loss
    assert (multihead_loss.name, multihead_loss.beta, multihead_loss.alpha) == ("multi_similarity", 40.0, 2.0)


@pytest.mark.parametrize(
    ("part", "field", "other"),
    [("pair", "alpha", "contrastive"), ("proxy", "alpha", "proxy_nca")],
)
def test_another_part_of_a_hybrid_loss_drops_the_fields_of_the_one_it_replaces(
    tmp_path: Path, part: str, field: str, other: str
) -> None:
    changed = params(tmp_path, f"methods: {{multihead: {{loss: {{{part}: {{{field}: 3.0}}}}}}}}")
    assert getattr(getattr(resolve(changed, "cub", "multihead").loss, part), field) == 3.0
    replaced = getattr(resolve(changed, "cub", "multihead", {f"loss.{part}.name": other}).loss, part)
    assert replaced.name == other
    assert not hasattr(replaced, field)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "transport_ratio: 0.3",
            "transport_ration: 0.3",
            ["params.yaml:8", "methods.mine.pooling.transport_ration is not a setting", "transport_ratio?"],
        ),
        (
            "{epsilon: 0.5}",
            "{epsilon: -1}",
            ["params.yaml:25", "datasets.tiny.methods.mine.pooling.epsilon", "greater than 0", "-1"],
        ),
        ("learning_rate: 0.01", "learning_rate: fast", ["params.yaml:21", "optimizer.learning_rate", "fast"]),
        ("learning_rate: 0.01", "learning_rate: '0.01'", ["params.yaml:21", "valid number", "'0.01'"]),
        ("name: contrastive, ", "name: contrastiv, ", UNKNOWN_LOSS),
        (
            "{epsilon: 0.5}",
            "{prototypes: 4, initialization_memory: 5}",
            ["params.yaml:25", "initialization_memory"],
        ),
        (
            "      mine:\n        pooling: {epsilon: 0.5}",
            "      mine: sharp",
            ["params.yaml:24", "methods.mine must be a block", "'sharp'"],
        ),
        (
            "    method: gsp",
            "    method: gps",
            ["methods.mine", "'gps'", "baseline, crt, multihead, gsp, irt"],
        ),
        (
            "    recipe:\n",
            "    recipes:\n",
            ["params.yaml:19", "datasets.tiny.recipes is of an earlier version", "datasets.tiny.methods"],
        ),
        (
            "    recipe:\n",
            "    recip:\n",
            ["params.yaml:19", "datasets.tiny.recip is not a setting", "Did you mean recipe?"],
        ),
        ("ingest: {", "ingest: {{", ["params.yaml:3", "not valid YAML"]),
    ],
)
def test_an_error_names_line_and_key(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        resolve(params(tmp_path, TEXT.replace(old, new, 1)), "tiny", "mine")
    for part in expected:
        assert part in str(caught.value)


def test_an_error_about_a_merged_key_names_the_line_of_its_block(tmp_path: Path) -> None:
    text = """\
methods:
  wide: &wide {like: ms, dim: none}
  wider:
    <<: *wide
    koleo_weight: 0.1
"""
    with pytest.raises(UserError, match=r"params\.yaml:3: methods\.wider\.dim: .* got 'none'"):
        resolve(params(tmp_path, text), "parts", "wider")


def test_an_error_lists_the_known_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown datasets\.tinny[^\n]*\n.*Did you mean tiny"):
        resolve(params(tmp_path), "tinny", "gsp")
    with pytest.raises(
        UserError, match=r"unknown methods\.tripplet[^\n]*\n.*Did you mean triplet.*gsp, .*mine"
    ):
        resolve(params(tmp_path), "tiny", "tripplet")
    with pytest.raises(UserError, match=r"methods\.nameless has neither `like` nor `method`"):
        resolve(params(tmp_path), "tiny", "nameless")


def test_blocks_of_stages(tmp_path: Path) -> None:
    source, ingest = dataset_settings(params(tmp_path), "tiny")
    assert (source.kind, source.path, source.test_share) == ("folder", "photos", 0.5)
    assert ingest == IngestSettings(resize=64)
    assert settings(params(tmp_path), "train", TrainSettings).workers == 2
    assert settings(params(tmp_path), "run", RunSettings).seeds == (0,)
    with pytest.raises(
        UserError, match=r"params\.yaml:3: train\.worker is not a setting[^\n]*\n.*Did you mean workers"
    ):
        settings(params(tmp_path, TEXT.replace("workers: 2", "worker: 2")), "train", TrainSettings)
    with pytest.raises(
        UserError,
        match=r"params\.yaml:18: datasets\.tiny\.source\.pth is not a setting[^\n]*\n.*Did you mean path",
    ):
        dataset_settings(params(tmp_path, TEXT.replace("path: photos", "path: photos, pth: photos")), "tiny")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("{kind: folder, path: photos}", "photos", ["params.yaml:18", "datasets.tiny.source", "'photos'"]),
        ("kind: folder", "kind: foldr", UNKNOWN_KIND),
        ("kind: folder, ", "", ["params.yaml:17", "datasets.tiny.source.kind is missing"]),
    ],
)
def test_refuses_an_invalid_source(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in TEXT
    with pytest.raises(UserError) as caught:
        dataset_settings(params(tmp_path, TEXT.replace(old, new, 1)), "tiny")
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("kind", get_args(get_args(Source)[0]), ids=lambda kind: kind.__name__)
def test_an_error_lists_the_fields_of_the_source(tmp_path: Path, kind: type[Strict]) -> None:
    """Every source of the union is checked; an unregistered source would list no field."""
    name, known_field = (
        kind.model_fields["kind"].default,
        next(field for field in kind.model_fields if field != "kind"),
    )
    needed = "path: photos, " if name == "folder" else ""
    text = TEXT.replace("{kind: folder, path: photos}", f"{{kind: {name}, {needed}{known_field}s: 1}}")
    with pytest.raises(
        UserError,
        match=(
            rf"params\.yaml:18: datasets\.tiny\.source\.{known_field}s is not a setting[^\n]*\n"
            rf".*Did you mean {known_field}\?"
        ),
    ):
        dataset_settings(params(tmp_path, text), "tiny")


def test_a_folder_set_without_path_uses_the_folder_of_its_name(tmp_path: Path) -> None:
    text = (
        "ingest: {}\ndatasets: {my-birds: {source: {kind: folder}}, other: {source: {kind: cub, path: "
        "archives}}}"
    )
    source, _ = dataset_settings(params(tmp_path, text), "my-birds")
    assert source == dataset_settings(params(tmp_path, text), "folder")[0].model_copy(
        update={"path": "data/raw/my-birds"}
    )
    assert dataset_settings(params(tmp_path, text), "other")[0].model_dump() == {
        "kind": "cub",
        "path": "archives",
    }
    inshop = resolve(params(tmp_path, text), "other", "irt_l")
    assert inshop == resolve(params(tmp_path, text), "cub", "irt_l"), (
        "a data set has the recipes of the kind of its source"
    )


@pytest.mark.parametrize(
    "domain",
    [
        {"grid": []},
        {"uniform": [2, 1]},
        {"grid": [1], "choice": [2]},
        {"normal": [0, 1]},
        {"loguniform": [1, 2, 3]},
    ],
)
def test_refuses_a_sweep_without_valid_values(domain: dict[str, list[float]], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pooling\.epsilon"):
        SweepSettings.parse({"space": {"pooling.epsilon": domain}, "iterations": 10})


def test_a_key_of_a_sweep_replaces_the_published_one(tmp_path: Path) -> None:
    published = sweep_settings(params(tmp_path, "methods: {}"), "gsp")
    assert set(published.space) == {"pooling.prototypes", "pooling.transport_ratio", "pooling.epsilon"}
    text = (
        "sweep: {gsp: {space: {dim: {grid: [64]}}}, gsp-soft: {grace: 3}}\nmethods: {gsp-soft: {like: gsp}}"
    )
    settings = sweep_settings(params(tmp_path, text), "gsp-soft")
    assert (set(settings.space), settings.grace, settings.trials) == ({"dim"}, 3, published.trials)
    with pytest.raises(UserError, match=r"sweep\.mine is missing, and mine has no published search space"):
        sweep_settings(params(tmp_path), "mine")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["run: \0", "run: \x7f", "[" * 1000, "?\n  a: {}\n: 2"])
def test_refuses_text_that_yaml_cannot_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"params\.yaml.* is not valid YAML: ."):
        Params(path)


def test_block_weights_sets_the_checkpoint_of_a_network(tmp_path: Path) -> None:
    files = {"bn_inception": "/w/bn.pth", "resnet50.tv_in1k": "/w/r50.pth"}
    content = {"weights": files, "methods": {"gsp": {"backbone": {"checkpoint": "/own.pth"}}}}
    params = write(tmp_path, content)
    assert resolve(params, "cub", "ms").backbone.checkpoint == "/w/bn.pth"
    assert resolve(params, "cub", "multihead").backbone.checkpoint == "/w/r50.pth"
    assert resolve(params, "cub", "gsp").backbone.checkpoint == "/own.pth"
    assert resolve(params, "cub", "crt").backbone.checkpoint is None, "another network"
    assert resolve(params, "parts", "ms").backbone.checkpoint is None, "random weights"
    assert layers_of(params, "cub", "ms").origin("backbone.checkpoint").endswith("params.yaml:1, weights")
    row = "gsp-table-1-neither"
    assert resolve(with_rows(params, row), "cub", row).backbone.checkpoint == "/w/bn.pth"
