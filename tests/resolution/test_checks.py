"""The checks of stage `resolve` before any long stage: missing files, recipes that fit no network, too few
classes."""

import re
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest

from pipeline.config import EnsembleSettings, FolderSource, Params, PartsSource, Source, resolve
from pipeline.config.dataset import CollageSource, CubSource, InshopSource, LandmarksSource, TokensSource
from pipeline.config.recipe_files import published
from pipeline.config.strict import Strict
from pipeline.methods.compatibility import require_compatible
from pipeline.resolution.checks import (
    require_checkpoint,
    require_distinct_cells,
    require_files,
    require_schedule,
    require_statistics,
)
from pipeline.resolution.files import check, plan
from pipeline.resolution.sizes import Size, require_batches, size_of
from pipeline.resolution.trainings import of_folds, of_method
from pipeline.runtime.errors import UserError
from stages.resolve import run
from tests.params import project

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "kind",
    [kind for kind in get_args(get_args(Source)[0]) if "path" in kind.model_fields],
    ids=lambda kind: kind.__name__,
)
def test_the_error_of_a_missing_set_has_a_remedy(tmp_path: Path, kind: type[CubSource]) -> None:
    with pytest.raises(UserError) as caught:
        require_files(kind(path=str(tmp_path / "raw")), "mine")
    assert str(caught.value).startswith(f"{tmp_path / 'raw'} does not exist.\n")
    assert "datasets.mine.source.path" in caught.value.remedy
    published = kind is not FolderSource
    assert ("Its page is http" in caught.value.remedy) is published


def test_names_the_published_file_with_size_hash_page_and_command(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*\n")  # as in a git clone
    (tmp_path / ".CUB_200_2011.tgz.partial").write_bytes(b"half")
    with pytest.raises(UserError, match="is empty") as caught:
        require_files(CubSource(path=str(tmp_path)), "cub")
    for part in (
        "CUB_200_2011.tgz",
        "1,150,585,339 bytes",
        "97eceeb196236b17998738112f37df78",
        "unseen data cub",
        "vision.caltech.edu",
    ):
        assert part in caught.value.remedy
    (tmp_path / "CUB_200_2011.tgz").write_bytes(b"whole")
    require_files(CubSource(path=str(tmp_path)), "cub")
    require_files(CubSource(path=str(tmp_path / "CUB_200_2011.tgz")), "cub")


def test_a_set_without_direct_link_offers_no_download(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        require_files(InshopSource(path=str(tmp_path)), "inshop")
    assert "unseen data" not in caught.value.remedy
    assert "agreement" in caught.value.remedy


def test_a_derived_set_requires_its_source(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unseen data cifar100"):
        require_files(CollageSource(path=str(tmp_path)), "collage")


def test_landmarks_require_every_part_that_is_not_excluded(tmp_path: Path) -> None:
    for part in ("sfm120k", "roxford5k"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "list.pkl").touch()
    places = {part: str(tmp_path / part) for part in ("sfm120k", "roxford5k", "rparis6k")}
    with pytest.raises(
        UserError,
        match=r"rparis6k does not exist[^\n]*\n.*unseen data rparis6k.*datasets\.landmarks\.source\.rparis6k",
    ):
        require_files(LandmarksSource(**places), "landmarks")
    require_files(LandmarksSource(**places | {"rparis6k": None}), "landmarks")


def test_a_drawn_set_requires_no_file() -> None:
    require_files(PartsSource(), "parts")
    require_files(TokensSource(), "tokens")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "datasets.parts.methods.gsp.pooling",
            {"prototypess": 8},
            r"prototypess is not a(.|\n)*mean prototypes",
        ),
        ("run.datasets", ["part"], r"unknown datasets\.part\.(.|\n)*Did you mean parts"),
        ("run.sweeps", ["gspp"], r"unknown methods\.gspp\.(.|\n)*Did you mean gsp"),
        ("evaluate.confidence", 95, r"evaluate\.confidence.*less than 1.*got 95"),
    ],
)
def test_a_mistake_in_params_ends_the_stage(folder: Path, key: str, value: Any, message: str) -> None:
    project(folder, {key: value})
    with pytest.raises(UserError, match=message):
        run()
    assert not (folder / "data/resolved").exists()


@pytest.mark.slow
def test_the_committed_settings_are_valid(folder: Path) -> None:
    (folder / "data/raw/parts").mkdir(parents=True)
    check(plan(project(folder)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "datasets.parts.recipe.backbone.name",
            "test_resnat",
            r"ms on parts: timm has no network 'test_resnat'\. Did you mean test_resnet[^$]*-S "
            r"'\+\+datasets\.parts\.methods\.ms\.backbone\.name=",
        ),
        (
            "datasets.parts.recipe.backbone.checkpoint",
            "none.safetensors",
            r"The checkpoint none\.safetensors of test_resnet is missing\.[^$]*-S "
            r"'\+\+datasets\.parts\.methods\.ms\.backbone\.checkpoint=\.\.\.'",
        ),
        (
            "train.workers",
            5,
            r"5 workers cannot share a batch of 48 "
            r"images[^$]*\(pipeline/recipes/datasets/parts\.yaml:\d+\)\. "
            r"Change it with -S '\+\+datasets\.parts\.methods\.ms\.batch\.classes=",
        ),
        (
            "methods.ms.backbone.arguments",
            {"output_strid": 8},
            r"ms on parts: .*timm cannot build test_resnet .*output_strid",
        ),
        ("methods.gps.dim", 64, r"unknown methods\.gps|methods\.gps has neither"),
        (
            "methods.gsp_x",
            {"like": "gsp", "pooling": {"epsilom": 1.0}},
            r"methods\.gsp_x\.pooling\.epsilom is not a setting[^$]*epsilon\?",
        ),
        ("run.methods", ["yes"], r"run\.methods: YAML reads this name .*got 'yes'"),
        ("run.datasets", ["my birds"], r"run\.datasets: a name starts with a letter .*got 'my birds'"),
        ("run.methods", 8, r"run\.methods: Input should be a valid (list|array|tuple), got 8"),
        (
            "ensemble.folds",
            4,
            r"ensemble\.folds: expected a list, such as \[1, 2, 3, 4\] for four folds, got 4",
        ),
        ("ensemble.folds", [1, 3], r"ensemble\.folds: expected every fold in order, such as \[1, 2, 3, 4\]"),
        ("ensemble.seeds", [0, 0], r"ensemble\.seeds: a seed occurs twice: \[0, 0\]"),
        ("run.ensembles", True, r"run\.ensembles: Input should be a valid (list|array|tuple), got True"),
        ("runs", {}, r"runs is not a setting"),
        ("check", {}, r"check is not a setting[^$]*Stage `resolve` replaces stage `check`"),
        ("ensemble.repeats", 3, r"ensemble\.repeats is not a setting[^$]*`seeds: \[0, 1, 2\]`"),
        ("run.seeds", [2**70], r"params\.yaml:1: run\.seeds: Input should be less than 2147483648"),
        ("export.batch_size", "8", r"export\.batch_size: Input should be a valid integer, got '8'"),
        ("export.batch_size", True, r"export\.batch_size: Input should be a valid integer, got True"),
        (
            "evaluate.reduce",
            {"dim": 65},
            r":1: evaluate\.reduce\.dim is 65, but ms on .* 64 dimensions",
        ),
        (
            "evaluate.approximate",
            {"kind": "ivf_pq", "code_bytes": 7},
            r":1: evaluate\.approximate\.code_bytes is 7, which does not divide the 64[^$]*divisor: 1, 2, 4",
        ),
        (
            "evaluate.approximate",
            {"kind": "ivf", "lists": 1024},
            r":1: evaluate\.approximate\.lists is 1,024, but parts has 1,023 neighbours",
        ),
        (
            "evaluate.recall_at",
            [1, 1024],
            r":1: evaluate\.recall_at contains 1,024, but a query of parts has 1,023[^$]*above 1023",
        ),
        (
            "methods.ms.batch",
            {"classes": 2, "images_per_class": 10**9},
            r"2,000,000,000 images .* but parts has 1,024 train images of 64 classes[^$]*"
            r"methods\.ms\.batch\.images_per_class=",
        ),
        ("sweep.gpx.space", {"dim": {"grid": [8]}}, r":1: unknown sweep\.gpx\.[^$]*run\.sweeps lists"),
        ("sweep.ms.space", {"dim": {"uniform": [2, 1]}}, r":1: sweep\.ms\.space: uniform: .* must ascend"),
    ],
)
def test_errors_of_later_stages_stop_the_run(folder: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, {key: value})))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "folds",
            list(range(1, 66)),
            r":1: ensemble\.folds has 65 folds, but parts has 64 train classes[^$]*64 or less",
        ),
        ("recall_at", [1024], r":1: ensemble\.recall_at contains 1,024, but a query of parts has 1,023"),
    ],
)
def test_refuses_an_ensemble_beyond_the_data(folder: Path, key: str, value: Any, message: str) -> None:
    (folder / "data/raw/parts").mkdir(parents=True)
    check(plan(project(folder, {f"ensemble.{key}": value})))  # without ensembles the block has no effect
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, {f"ensemble.{key}": value, "run.ensembles": ["ms"]})))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            {"batch.classes": {"grid": [8, 65]}},
            r":1: sweep\.ms\.space, trial {'batch\.classes': 65}: A batch needs 65 classes, but only 51 "
            r"[^$]*sweep\.ms\.space sets",
        ),
        (
            {"backbone.name": {"grid": ["test_resnet", "test_resnat"]}},
            r":1: sweep\.ms\.space, trial .*timm has no network 'test_resnat'[^$]*sweep\.ms\.space sets",
        ),
        (
            {"backbone.checkpoint": {"grid": ["none.safetensors"]}},
            r":1: sweep\.ms\.space, trial .*none\.safetensors of test_resnet is missing[^$]*sets the values",
        ),
        (
            {"input.size": {"grid": [48, 1]}},
            r":1: sweep\.irt_r\.space, trial {'input\.size': 1}: .*test_vit cannot embed images of 1 x 1 "
            r"[^$]*sweep\.irt_r\.space sets",
        ),
        (
            {"schedule.warmup": {"grid": [0, 121]}},
            r":1: sweep\.ms\.space, trial {'schedule\.warmup': 121}: The warm-up has 121 iterations, but the "
            r"training has 120[^$]*sets the values",
        ),
    ],
)
def test_refuses_a_trial_that_cannot_be_trained(folder: Path, space: dict[str, Any], message: str) -> None:
    method = "irt_r" if "input.size" in space else "ms"
    sweep = {"space": space, "iterations": 120}
    changes = {"run.methods": ["ms"], "run.sweeps": [method], "sweep": {method: sweep}}
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes)))


@pytest.mark.slow
def test_names_the_layer_of_a_field_that_a_trial_does_not_set(folder: Path) -> None:
    sweep = {"space": {"dim": {"grid": [8]}}, "iterations": 120}
    batch = {"ms": {"batch": {"classes": 60}, "training": {"protocol": "published"}}}
    changes = {"run.methods": ["ms"], "run.sweeps": ["ms"], "sweep": {"ms": sweep}, "methods": batch}
    message = (
        r"trial {'dim': 8}: A batch needs 60 classes, but only 51[^$]*-S .*methods\.ms\.batch\.classes=51"
    )
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes)))


def test_refuses_a_batch_that_a_fold_leaves_too_few_classes_for(folder: Path) -> None:
    batch = {"ms": {"batch": {"classes": 40, "images_per_class": 2}}}
    changes = {"run.methods": ["ms"], "run.sweeps": [], "run.ensembles": ["ms"], "methods": batch}
    check(plan(project(folder, changes)))  # four folds leave 48 classes
    message = (
        r":1: ensemble\.folds, model 1 of 2 of ms on parts: A batch needs 40 classes, but only 32 [^$]*"
        r"more folds in ensemble\.folds[^$]*-S '\+\+datasets\.parts\.methods\.ms\.batch\.classes=32'"
    )
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes | {"ensemble.folds": [1, 2]})))


def test_the_batches_of_a_published_set_fit_its_folds() -> None:
    params = Params(ROOT / "params.yaml")
    size = Size(train_classes=100, train_images=5_864, neighbours=5_923, train_labels=None)
    recipe = resolve(params, "cub", "ms", {"batch.classes": 60})
    folds = EnsembleSettings(folds=(1, 2))
    with pytest.raises(UserError, match=r"100 classes, 50 of them without the fold"):
        require_batches(params, size, of_folds(params, "cub", "ms", recipe, folds))
    require_batches(params, size, of_folds(params, "cub", "ms", recipe, EnsembleSettings()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "methods.ms.schedule",
            {"warmup": 10**6},
            r"The warm-up has 1,000,000 iterations[^$]*params\.yaml:1, methods\.ms\)\. Change it with -S "
            r"'\+\+datasets\.parts\.methods\.ms\.schedule\.warmup=",
        ),
        ("run.seeds", [0, 1, 0], r":1: run\.seeds: 0: list each name once"),
        ("run.methods", ["ms", "ms"], r":1: run\.methods: ms: list each name once"),
        ("run.datasets", ["parts", "parts"], r":1: run\.datasets: parts: list each name once"),
        (
            "train.images_per_pass",
            8,
            r"ms on parts: train\.images_per_pass is set, and .* normalises by statistics",
        ),
    ],
)
def test_refuses_settings_that_no_stage_can_use(folder: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, {key: value})))


def test_a_shortened_training_keeps_the_published_warm_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    params = project(folder)
    recipe = resolve(params, "parts", "ms", {"training.iterations": 4})
    require_schedule(params, of_method("parts", "ms", recipe, (0,)))
    assert re.search(
        r"note: ms on parts: The warm-up has 20 iterations, .* 4: .*parts\.yaml:\d+", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("kind", "neighbours", "train_classes"),
    [("cub", 5_923, 100), ("inshop", 12_612, 3_997), ("cifar10", None, None)],
)
def test_the_size_of_a_published_set_is_its_published_count(
    kind: str, neighbours: int | None, train_classes: int | None
) -> None:
    class Block(Strict):
        source: Source

    size = size_of(Block.parse({"source": {"kind": kind}}).source)
    assert (size and size.neighbours, size and size.train_classes) == (neighbours, train_classes)


def test_a_gallery_without_its_queries_has_one_more_neighbour(folder: Path) -> None:
    lines = ["path,label,split,is_query,is_gallery"]
    for name, image in product("abcd", range(3)):
        (folder / f"{name}{image}.jpg").touch()
        split = "train" if name in "ab" else "test"
        lines.append(f"{name}{image}.jpg,{name},{split},{int(image == 0)},{int(image > 0)}")
    (folder / "labels.csv").write_text("\n".join(lines))
    size = size_of(FolderSource(path=str(folder), labels="labels.csv"))
    assert size is not None
    assert (size.neighbours, size.train_classes, size.train_images) == (4, 2, 6)


def test_refuses_two_cells_with_one_stage_name(folder: Path) -> None:
    require_distinct_cells(("a", "a-b"), ("x", "b-x"[2:]))
    with pytest.raises(
        UserError,
        match=(
            r"Method b-c on data set a and method c on data set a-b|Method c on data set a-b and method b-c "
            r"on data set a"
        ),
    ):
        require_distinct_cells(("a", "a-b"), ("b-c", "c"))
    sets = {name: {"source": {"kind": "parts"}} for name in ("a", "a-b")}
    variants = {name: {"like": "ms"} for name in ("b-c", "c")}
    changes = {
        "datasets": sets,
        "methods": variants,
        "run.datasets": ["a", "a-b"],
        "run.methods": ["b-c", "c"],
        "run.sweeps": [],
    }
    with pytest.raises(UserError, match="get the same stage name, train@a-b-c"):
        plan(project(folder, changes))


def test_refuses_a_checkpoint_that_differs_from_its_published_hash(folder: Path) -> None:
    path = folder / "resnet50-0676ba61.pth"
    path.write_bytes(b"cut short")
    params = project(folder, {"datasets.cub": {"recipe": {"backbone": {"checkpoint": str(path)}}}})
    with pytest.raises(UserError, match=r"resnet50-0676ba61\.pth is not the published file.* 0676ba61"):
        require_checkpoint(resolve(params, "cub", "multihead"))
    own = path.rename(folder / "own.pth")
    params = project(folder, {"datasets.cub": {"recipe": {"backbone": {"checkpoint": str(own)}}}})
    require_checkpoint(resolve(params, "cub", "multihead"))


@pytest.mark.parametrize(
    ("name", "input", "message"),
    [
        (
            "resnet18",
            {},
            r"mean \[0\.485, 0\.456, 0\.406\], std .* as resnet18\.a1_in1k, (.|\n)*backbone\.name="
            r"resnet18\.a1_in1k, or set input\.mean(.|\n)*unseen measure PHOTOS --network resnet18 ",
        ),
        ("resnet18", {"mean": [0.5, 0.5, 0.5]}, r"of resnet18 was trained are unknown"),
        ("resnet10t_unpublished", {}, r"Candidates:\n  mean \[0\.485(.|\n)*\n  Set input\.mean"),
        ("resnet18", {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}, None),
        ("resnet18.tv_in1k", {}, None),
        ("bn_inception", {}, None),
    ],
)
def test_refuses_a_checkpoint_whose_statistics_are_unknown(
    folder: Path, name: str, input: dict[str, list[float]], message: str | None
) -> None:
    blocks = {"backbone": {"name": name, "checkpoint": "own.pth"}, "input": input}
    params = project(folder, {"datasets.cub": {"recipe": blocks}})
    recipe = resolve(params, "cub", "ms")
    if message is None:
        require_statistics(recipe)
        return
    with pytest.raises(UserError, match=message):
        require_statistics(recipe)


@pytest.mark.slow
def test_resolve_refuses_a_checkpoint_whose_statistics_are_unknown(folder: Path) -> None:
    (folder / "data/raw/parts").mkdir(parents=True)
    (folder / "own.pth").write_bytes(b"weights")
    backbone = {"name": "resnet18", "checkpoint": "own.pth"}
    with pytest.raises(
        UserError, match=r"own\.pth of resnet18 was trained are unknown[^$]*-S '\+\+\S*ms\.input\.mean"
    ):
        check(plan(project(folder, {"methods.ms.backbone": backbone})))


def test_refuses_too_few_classes_before_reading_images(folder: Path) -> None:
    for name, image in product(range(17), range(3)):
        path = folder / f"data/raw/my-birds/{name}/{image}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    changes = {
        "run.datasets": ["my-birds"],
        "run.methods": ["gsp", "ms"],
        "run.sweeps": [],
        "datasets.my-birds": {"source": {"kind": "folder"}, "recipe": {"backbone": {"name": "test_resnet"}}},
    }
    message = (
        r"A batch needs 8 classes, but only 6 can be trained on\.[^$]*-S "
        r"'\+\+datasets\.my-birds\.methods\.gsp\.batch\.classes=6'"
    )
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, changes)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "method", "changed", "message"),
    [
        ("cub", "irt_r", {"input.size": 232}, "takes images of 224 x 224, input.size is 232"),
        (
            "cub",
            "gsp",
            {},
            r"No library downloads the pretrained weights of bn_inception[^$]*backbone\.checkpoint",
        ),
        ("tokens", "ms", {"backbone.pretrained": True}, "token_embedding has no published weights"),
        ("parts", "multihead", {"backbone.stages": [-9, -1]}, "feature maps"),
        ("parts", "multihead", {"heads": "single"}, r"heads: single: focus needs a fine map of 14 x 14"),
        ("parts", "ms", {"pooling.name": "cls"}, "class token"),
    ],
)
def test_refuses_an_invalid_recipe_without_its_weights(
    dataset: str, method: str, changed: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        require_compatible(resolve(Params(ROOT / "params.yaml"), dataset, method, changed))


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["folder", "tokens", "landmarks"])
def test_every_recipe_builds_a_method(dataset: str) -> None:
    params = Params(ROOT / "params.yaml")
    for method in published("methods"):
        require_compatible(resolve(params, dataset, method, {"backbone.pretrained": False}))
