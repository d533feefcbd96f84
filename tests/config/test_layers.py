"""Recipes of all sources of patches: the value of a field, the place that sets it, and refused values."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest

from tests.params import project, resolve
from unseen.cli.main import main
from unseen.cli.recipe import recipe as printed_recipe
from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import Layers, Patch, dotted
from unseen.config.place import ABSENT, Place, at
from unseen.config.study_row import is_small
from unseen.data.settings import Input
from unseen.experiments.catalogue import definitions
from unseen.experiments.folds.members import fold
from unseen.experiments.ladder.head import LENGTHS, layers_of_head
from unseen.experiments.sweep.space import trial
from unseen.frozen.head import head
from unseen.frozen.maps import Trunk
from unseen.frozen.trunk import Layout
from unseen.networks.backbone import Backbone
from unseen.runtime.errors import UserError
from unseen.runtime.stage import ROOT

PARAMS = """\
run: {datasets: [tiny], methods: [mine], seeds: [0]}
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
  gsp_average: {dim: 16}
  nameless: {dim: 64}
weights: {bn_inception: /w/bn.pth, resnet50.tv_in1k: /w/r50.pth}
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
  cifar10: {source: {path: elsewhere}, recipe: {dim: 32}}
  others: {source: {kind: cub, path: archives}}
"""
STUDY = """\
mine:
  title: t
  methods: {a: {like: mine, dim: 32}}
  datasets: [parts]
  recipe: {training.iterations: 7}
  protocol: selected
  sources: {parts: {images_per_class: 9}}
"""
ROW, DEIT, R50 = "crt-table-8-k1-4", "irt-table-4-deit-s-snca", "irt-table-4-r50-contr"
PROXY = "irt-table-2-proxynca-plus-plus-2"
SPLIT = "cifar10-split-images"
ROWS = (
    ROW, DEIT, R50, "mine-a", "multihead-figure-8-multihead-dim-256", "gsp-table-1-neither",
    "gsp-figure-5-with", "multihead-figure-1-proxy-anchor", "irt-table-6-lambda-1-0", PROXY,
    "gsp-table-2-ms-plus-gsp",
)  # fmt: skip
TRUNK = Trunk(
    Mock(spec=Backbone, cls_channels=48, channels=(96, 192)),
    {"name": "vit", "pretrained": True, "stages": [-2, -1], "arguments": {"img_size": 224}},
    Input(size=200, resize=210),
    "digest",
    Mock(spec=Layout),
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Definitions:
    folder = tmp_path_factory.mktemp("layers")
    return written(folder, PARAMS)


def written(folder: Path, text: str) -> Definitions:
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies/mine.yaml").write_text(STUDY, encoding="utf-8")
    (folder / "params.yaml").write_text(text, encoding="utf-8")
    return definitions(Params(folder / "params.yaml"), *ROWS, datasets=(SPLIT,))


class Case(NamedTuple):
    """A field of the recipe of a source."""

    source: Callable[[Definitions], Layers]
    field: str
    value: Any
    place: str  # a regular expression


def run(dataset: str, method: str) -> Callable[[Definitions], Layers]:
    return lambda known: known.layers(dataset, method)


def changed(dataset: str, method: str, changes: dict[str, Any]) -> Callable[[Definitions], Layers]:
    return lambda known: known.layers(dataset, method).plus(dotted(Place("test"), changes))


def trial_of(dataset: str, method: str) -> Callable[[Definitions], Layers]:
    length = {"training.protocol": "selected", "training.iterations": 100}
    return lambda known: trial(
        known.layers(dataset, method), "a trial", length, {"backbone.name": "test_vit"}
    )


def fold_of(dataset: str, method: str) -> Callable[[Definitions], Layers]:
    return lambda known: fold(known.layers(dataset, method), 2, 4)


def head_of(method: str, trunk: Any = None, **changes: Any) -> Callable[[Definitions], Layers]:
    return lambda _: head(method, trunk, changes)


PUBLISHED = "pipeline/recipes"
OTHER = {"loss.pair.name": "contrastive", "loss.proxy.name": "proxy_nca"}
AVERAGE = rf"{PUBLISHED}/methods/gsp_average\.yaml:\d+"
MINE = r"params\.yaml:25, datasets\.tiny\.methods\.mine"
CASES = [
    # published files and params.yaml
    Case(run("cub", "gsp"), "optimizer.clip_norm", ..., rf"{PUBLISHED}/methods/_mlrc\.yaml:\d+"),
    Case(run("cub", "gsp"), "input.size", ..., "default"),
    Case(run("parts", "gsp_xbm"), "memory.size", ..., rf"{PUBLISHED}/datasets/parts\.yaml:\d+"),
    Case(run("inshop", "gsp"), "pooling.prototypes", 128, rf"{PUBLISHED}/methods/_gsp\.yaml:\d+"),
    Case(run("tiny", "mine"), "pooling.transport_ratio", 0.3, r"params\.yaml:6, methods\.mine"),
    Case(run("tiny", "mine"), "pooling.epsilon", 0.5, MINE),
    Case(run("tiny", "mine"), "optimizer.learning_rate", 0.01, r"params\.yaml:21, datasets\.tiny\.recipe"),
    Case(run("tiny", "mine"), "optimizer.weight_decay", 1e-4, rf"{PUBLISHED}/datasets/folder\.yaml:\d+"),
    Case(run("tiny", "mine"), "optimizer.nesterov", False, "default"),
    Case(run("tiny", "mine"), "training.iterations", 2000, rf"{PUBLISHED}/datasets/folder\.yaml:\d+"),
    # a variant has the layers of its parent; the data set's change for the parent is above the variant
    Case(run("tiny", "soft"), "pooling.epsilon", 0.5, MINE),
    Case(run("inshop", "gsp-soft"), "pooling.transport_ratio", 0.4, r"params\.yaml:11, methods\.gsp"),
    Case(run("parts", "gsp-soft"), "pooling.epsilon", 1.0, r"params\.yaml:12, methods\.gsp-soft"),
    Case(run("parts", "gsp_average"), "dim", 16, r"params\.yaml:13, methods\.gsp_average"),
    Case(run("parts", "gsp_average"), "pooling.transport_ratio", 0.4, r"params\.yaml:11, methods\.gsp"),
    # another part drops the fields of the replaced one; a change keeps siblings
    Case(run("tiny", "mine"), "loss", {"name": "contrastive", "margin": 0.2}, ""),
    Case(run("tiny", "multihead"), "loss.beta", 40.0, r"params\.yaml:27, datasets\.tiny\.methods\.multihead"),
    Case(run("tiny", "multihead"), "loss.alpha", 2.0, "default"),
    Case(run("tiny", "multihead"), "backbone.stages", [-2, -1], "default"),
    Case(changed("cub", "multihead", OTHER), "loss.pair.alpha", ABSENT, "default"),
    Case(changed("cub", "multihead", OTHER), "loss.proxy.alpha", ABSENT, "default"),
    # block weights is above all
    Case(run("cub", "ms"), "backbone.checkpoint", "/w/bn.pth", r"params\.yaml:15, weights"),
    Case(run("cub", "multihead"), "backbone.checkpoint", "/w/r50.pth", r"params\.yaml:15, weights"),
    Case(run("cub", "crt"), "backbone.checkpoint", None, "default"),
    Case(run("parts", "ms"), "backbone.checkpoint", None, "default"),
    Case(changed("cub", "ms", {"backbone.checkpoint": "/own"}), "backbone.checkpoint", "/own", "test"),
    Case(run("cub", "gsp-table-1-neither"), "backbone.checkpoint", "/w/bn.pth", r"params\.yaml:15, weights"),
    # a row of a study ignores the changes of params.yaml, but not a method that only params.yaml has
    Case(run("sop", ROW), "embedding.prototypes", 4, rf"{PUBLISHED}/studies/crt\.yaml:\d+"),
    Case(run("sop", ROW), "backbone.name", "mit_b1", rf"{PUBLISHED}/studies/crt\.yaml:\d+"),
    Case(run("sop", ROW), "training.patience", None, rf"{PUBLISHED}/studies/crt\.yaml:\d+"),
    Case(run("cub", "gsp-table-2-ms-plus-gsp"), "pooling.transport_ratio", ..., rf"{PUBLISHED}/.*"),
    Case(run("parts", "mine-a"), "dim", 32, r"studies/mine\.yaml:1"),
    Case(run("parts", "mine-a"), "pooling.transport_ratio", 0.3, r"params\.yaml:6, methods\.mine"),
    Case(run("parts", "mine-a"), "training.iterations", 7, r"studies/mine\.yaml:1"),
    # a small set keeps its network, images and schedule, and the axes of the study
    Case(run("parts", ROW), "embedding.prototypes", 4, ""),
    Case(run("parts", ROW), "backbone.name", "test_resnet", rf"{PUBLISHED}/studies/crt\.yaml:\d+"),
    Case(run("parts", ROW), "batch.classes", 12, rf"{PUBLISHED}/datasets/\w+\.yaml:\d+"),
    Case(run("parts", DEIT), "backbone.arguments", {"img_size": 56, "patch_size": 8}, ""),
    Case(run("parts", DEIT), "pooling.name", "cls", ""),
    Case(run("parts", R50), "backbone.name", "test_resnet", ""),
    Case(run("parts", "multihead-figure-8-multihead-dim-256"), "dim", 256, ""),
    # the protocol of a row
    Case(run("cub", ROW), "training.protocol", "published", ""),
    Case(run("cub", "multihead-figure-1-proxy-anchor"), "training.protocol", "published", ""),
    Case(run("landmarks", "irt-table-6-lambda-1-0"), "training.protocol", "selected", ""),
    Case(run("sop", "irt-table-6-lambda-1-0"), "training.protocol", "published", ""),
    Case(run("cub", PROXY), "training.protocol", "refit", ""),
    Case(run("parts", PROXY), "training.protocol", "published", ""),
    Case(run("cub", "gsp-table-2-ms-plus-gsp"), "training.protocol", "selected", ""),
    # a data set of a study has the layers of the set that it is like, with its change for this source
    Case(run(SPLIT, "ms"), "training.protocol", "published", rf"{PUBLISHED}/datasets/.*"),
    Case(run(SPLIT, "ms"), "dim", 32, r"params\.yaml:28, datasets\.cifar10\.recipe"),
    Case(run("cifar10", "ms"), "training.protocol", "selected", ""),
    # a trial and a fold, of a method of the run and of a row
    Case(trial_of("tiny", "mine"), "training.iterations", 100, "a trial"),
    Case(trial_of("cub", ROW), "training.protocol", "selected", "a trial"),
    Case(trial_of("parts", "gsp"), "backbone.arguments", {}, ""),
    Case(trial_of("parts", "gsp"), "backbone.pretrained", False, rf"{PUBLISHED}/datasets/parts\.yaml:\d+"),
    Case(fold_of("parts", "gsp"), "training.fold", {"model": 2, "folds": 4}, ""),
    Case(fold_of("cub", ROW), "training.protocol", "selected", "Model 2 of 4 folds"),
    Case(fold_of("cub", PROXY), "training.protocol", "selected", "Model 2 of 4 folds"),
    # heads: of a recipe, of a rung, of an arm
    Case(head_of("gsp"), "optimizer.multipliers", {"proxies": 10.0}, ""),
    Case(head_of("gsp"), "batch.classes", 8, "The setting of heads"),
    Case(head_of("gsp"), "zero_shot.initialization", "chance", "The setting of heads"),
    Case(head_of("gsp_average"), "zero_shot", None, AVERAGE),
    Case(head_of("gsp_average"), "pooling.transport_ratio", 1.0, AVERAGE),
    Case(head_of("crt"), "backbone.name", "mit_b2", ""),
    Case(head_of("proxy_nca", dim=8), "dim", 8, "The head of proxy_nca"),
    Case(head_of("ms", TRUNK), "backbone.stages", [-1], "The network of the head of ms"),
    Case(head_of("multihead", TRUNK), "backbone.stages", [-2, -1], "The network of the head of multihead"),
    Case(head_of("ms", TRUNK, **{"pooling.name": "cls"}), "input.size", 200, "The network of the head of ms"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{CASES.index(case)}-{case.field}")
def test_value_and_place(known: Definitions, case: Case) -> None:
    """`...`: any value. An empty place: any, as for a block."""
    layers = case.source(known)
    value = at(layers.recipe().model_dump(mode="json"), case.field)
    assert value == case.value or (case.value is ... and value is not ABSENT)
    assert not case.place or re.search(f"{case.place}$", layers.origin(case.field))


WRONG: list[tuple[Callable[[Definitions], Layers], str]] = [
    (head_of("ms", dim=0), "The head of ms: dim: Input should be greater than or equal to 1, got 0"),
    (head_of("ms", TRUNK, **{"loss.x": 1}), "The head of ms: loss.x is not a setting"),
    (head_of("ms", TRUNK, dim=None, **{"backbone.nam": 1}), "The head of ms: backbone.nam is not a setting"),
    (changed("parts", "gsp", {"pooling.transport_ratio": 2}), "test: pooling.transport_ratio: .* got 2"),
    (changed("parts", "gsp", {"nothing.here": 1}), "test: nothing is not a setting"),
    (
        changed("parts", "gsp", {"batch.images_per_class": 1}),
        "test: batch.images_per_class must be at least 2",
    ),
    (
        changed("cub", ROW, {"loss.name": "contrastiv"}),
        r"test: unknown loss.name 'contrastiv'.\n.*contrastive\?",
    ),
    (run("cub", "irt-table-7-deit-b-distilled-cls"), "unknown methods"),
    (
        fold_of("landmarks", "contrastive"),
        "Model 2 of 4 folds: with batch.sampling tuples .* must be null",
    ),
    (run("tinny", "gsp"), r"unknown datasets\.tinny[^\n]*\n.*Did you mean tiny"),
    (run("tiny", "tripplet"), r"unknown methods\.tripplet[^\n]*\n.*Did you mean triplet.*gsp, .*mine"),
    (run("tiny", "nameless"), r"params.yaml:14: methods\.nameless has neither `like` nor `method`"),
    (head_of("gps"), "no method gps"),
]


@pytest.mark.parametrize(("source", "message"), WRONG)
def test_an_error_names_the_place(
    known: Definitions, source: Callable[[Definitions], Layers], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        source(known).recipe()


BLOCK = "methods.mine must be a block"
LOSS = [r":22: unknown", "loss.name 'contrastiv'", "Did you mean contrastive?", "proxy_anchor"]
EPSILON = ":25: datasets.tiny.methods.mine.pooling.epsilon"
MISTAKES = [
    ("transport_ratio: 0.3", "transport_ration: 0.3", [":6: methods.mine.pooling.transport_ration is not"]),
    ("{epsilon: 0.5}", "{epsilon: -1}", [EPSILON, "greater than 0", "-1"]),
    ("rate: 0.01", "rate: fast", [":21: datasets.tiny.recipe.optimizer.learning_rate", "fast"]),
    ("rate: 0.01", "rate: '0.01'", [":21: ", "valid number", "'0.01'"]),
    ("rate: 0.01", "rate: .nan", [":21: ", "finite number"]),
    ("rate: 0.01", "rate: .inf", [":21: ", "finite number"]),
    ("name: contrastive, ", "name: contrastiv, ", LOSS),
    ("{epsilon: 0.5}", "{prototypes: 4, initialization_memory: 5}", [":25: ", "initialization_memory"]),
    ("      mine:\n", "      mine:\n        input: {size: 900}\n", [":25: datasets.tiny.methods.mine.input"]),
    ("    method: gsp", "    method: gps", ["methods.mine: ", "'gps'", "baseline, crt, multihead, gsp, irt"]),
    ("      mine:\n        pooling: {epsilon: 0.5}", "      mine: sharp", [":24: ", BLOCK, "'sharp'"]),
    ("    recipe:\n", "    recipes:\n", [":19: ", "recipes is of an earlier version", "tiny.methods"]),
    ("    recipe:\n", "    recip:\n", [":19: datasets.tiny.recip is not", "Did you mean recipe?"]),
    ("    method: gsp", "    like: soft", [":3: methods.mine is like itself: mine -> soft -> mine"]),
    ("    method: gsp", "    like: gps", ["unknown methods.gps", "Did you mean gsp?"]),
    ("    method: gsp", "    like: g p", ["methods.g p: a name starts with a letter", "Rename it"]),
    (
        "contrastive, margin: 0.2",
        "hybrid, pair: {margin: 1}",
        [":22: ", "loss.pair.name is missing", "`name: `"],
    ),
    ("  mine:\n", "  mine:\n    <<: {dim: none}\n", [":3: methods.mine.dim: ", "got 'none'"]),  # merged
]


@pytest.mark.parametrize(("old", "new", "expected"), MISTAKES)
def test_an_error_names_line_and_key(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    assert old in PARAMS
    with pytest.raises(UserError) as caught:
        written(tmp_path, PARAMS.replace(old, new, 1)).layers("tiny", "mine").recipe()
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{like: ms}", "methods.gsp is a published recipe and cannot be like another"),
        ("{method: crt}", "methods.gsp.method: gsp is a gsp recipe, which cannot change"),
    ],
)
def test_a_published_method_keeps_its_class(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        written(tmp_path, f"methods: {{gsp: {text}}}").layers("parts", "gsp")


def test_a_row_equals_its_method_with_its_changes(tmp_path: Path) -> None:
    changes = {
        "methods": {"crt": {"networks": "shared"}},
        "datasets.sop": {"recipe": {"optimizer": {"learning_rate": 0.5}}},
    }
    published = {
        "backbone.name": "mit_b1",
        "embedding.prototypes": 4,
        "training.protocol": "published",
        "training.patience": None,
    }
    row = resolve(definitions(project(tmp_path, changes), ROW), "sop", ROW)
    assert row == resolve(Params(text=""), "sop", "crt", published)


def test_another_network_drops_settings_of_the_previous_one() -> None:
    own = {"backbone.name": "test_resnet", "backbone.arguments": {"output_stride": 8}}
    base = Layers("baseline", (dotted(Place("a"), own | {"backbone.batch_norm_momentum": 0.9}),))
    same = base.plus(dotted(Place("b"), {"backbone.arguments": {"in_chans": 3}})).recipe().backbone
    assert (same.arguments, same.batch_norm_momentum) == ({"output_stride": 8, "in_chans": 3}, 0.9)
    other = base.plus(dotted(Place("b"), {"backbone.name": "test_vit"})).recipe().backbone
    assert (other.name, other.arguments, other.batch_norm_momentum) == ("test_vit", {}, None)


def test_dotted_fields_are_one_patch_in_any_order() -> None:
    fields = {"loss.margin": 0.3, "loss": {"name": "contrastive", "margin": 0.1}}
    for each in (fields, dict(reversed(fields.items()))):
        assert dotted(Place("a"), each).fields == {"loss": {"name": "contrastive", "margin": 0.3}}


def test_the_module_of_a_part_is_its_identity() -> None:
    """A part from outside has a module; neither it nor a part with a name keeps fields of the other."""
    outside: dict[str, Any] = {"loss": {"module": "own.circle:Circle", "scale": 2}}
    layers = Layers("baseline", (Patch(Place("a"), outside),))
    assert {key: leaf.value for key, leaf in layers.trace()["loss"].items()} == outside["loss"]
    back = layers.plus(Patch(Place("b"), {"loss": {"name": "contrastive"}}))
    assert back.recipe().loss.name == "contrastive"


def test_heads_have_one_setting() -> None:
    recipe = head("gsp").recipe()
    optimizer, training = recipe.optimizer, recipe.training
    assert (recipe.batch.classes, recipe.batch.images_per_class, recipe.batch.sampling) == (8, 4, "classes")
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", 1e-3, 1e-4)
    assert (optimizer.epsilon, optimizer.decay_vectors, optimizer.multipliers) == (
        1e-8,
        False,
        {"proxies": 10.0},
    )
    assert (optimizer.new_layers_only, optimizer.clip_norm, optimizer.clip_value) == (0, 10.0, None)
    assert (recipe.schedule.name, recipe.schedule.warmup) == ("constant", 0)
    assert (training.protocol, training.patience, training.precision) == ("published", None, "float32")
    assert (training.compile, training.gradient_noise) == (False, None)


def test_a_rung_has_the_sizes_of_its_network() -> None:
    """At most 384 dimensions, as wide as the class token."""
    assert LENGTHS == (50, 100, 200, 400)
    recipe = layers_of_head("ms", TRUNK, 5).recipe()
    assert (recipe.batch.classes, recipe.dim, recipe.training.iterations) == (5, 48, 400)
    assert layers_of_head("crt", TRUNK, 50).recipe().embedding.dim == 48


def test_only_sets_with_small_networks_are_small() -> None:
    kinds = ("parts", "tokens", "omniglot", "cifar10", "collage", "cub", "folder", "landmarks")
    assert [kind for kind in kinds if is_small(kind)] == ["parts", "tokens", "omniglot", "cifar10", "collage"]


def test_an_error_about_a_recipe_names_where_to_change_it(known: Definitions) -> None:
    def remedy(method: str) -> str:
        with pytest.raises(UserError) as raised, field_origins(known, "cub", method):
            raise UserError("Too many classes.", "Set batch.classes=8.")
        assert raised.value.what == "Too many classes."
        return raised.value.remedy

    assert "-S '++datasets.cub.methods.ms.batch.classes=8'" in remedy("ms")
    place = rf"in the recipe of the row, study {ROW[:11]} \(pipeline/recipes/studies/crt\.yaml:\d+\)"
    assert re.search(rf"Change it {place}: batch\.classes: 8$", remedy(ROW))
    assert remedy("unknown") == "Set batch.classes=8."


@pytest.mark.parametrize(
    ("names", "field", "place"),
    [
        (
            ("parts", "gsp", None, 2),
            "transport_ratio: 0.3",
            "sweep.gsp.space: {'pooling.transport_ratio': 0.3}",
        ),
        (("parts", "ms", 3, None), "model: 3", "Model 3 of 4 folds"),
        (("head", "gsp", None, None), "initialization: chance", "The setting of heads"),
        (("arm", "crt-average", None, None), "transform: average", "The head of crt"),
    ],
)
def test_the_recipe_of_a_trial_fold_head_and_arm_is_printed_with_its_places(
    names: tuple[str, str, int | None, int | None], field: str, place: str
) -> None:
    lines = [
        " ".join(line.split()) for line in printed_recipe(Params(ROOT / "params.yaml"), *names).splitlines()
    ]
    (line,) = [line for line in lines if line.startswith(field)]
    assert line.endswith(place)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("parts", "gsp", None, 4), "There is no trial 4 of gsp.\n  Its sweep has 3 trials."),
        (("parts", "ms", 5, None), "There is no model 5.\n  ensemble.folds has "),
        (("head", "gps", None, None), "There is no method gps.\n  Did you mean gsp"),
        (("arm", "crt-averge", None, None), "There is no arm crt-averge.\n  Did you mean crt-average"),
    ],
)
def test_an_unknown_trial_fold_head_or_arm(
    names: tuple[str, str, int | None, int | None], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        printed_recipe(Params(ROOT / "params.yaml"), *names)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("parts", "gsp", "--fold", "1", "--trial", "2"),
        ("head", "gsp", "--fold", "1"),
        ("arm", "crt", "--diff", "HEAD"),
    ],
)
def test_options_that_exclude_each_other_are_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["recipe", *arguments])
    assert caught.value.code == 2
    assert "Give one of --diff, --fold and --trial" in capsys.readouterr().err
