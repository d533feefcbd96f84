"""The checks of stage `resolve` before any long stage: settings that no later stage can use."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.params import project, resolve
from unseen.config.definitions import Definitions
from unseen.experiments.plan.checks import require_distinct_cells, require_schedule
from unseen.experiments.plan.files import check, plan
from unseen.experiments.plan.trainings import Training
from unseen.runtime.errors import UserError
from unseen.stages.resolve import run


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
        ("evaluate.confidence", 95, r"evaluate\.confidence.*less than or equal to 0\.9999.*got 95"),
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
        ("analyze.reduce", {"dim": 65}, r":1: analyze\.reduce\.dim is 65, but ms on .* 64 dimensions"),
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
        *(
            (key, 10**9, rf":1: {re.escape(key)}: Input should be less than or equal to \d+, got 1000000000")
            for key in (
                "analyze.bootstrap",
                "analyze.histogram_bins",
                "analyze.transfer_splits",
                "report.thumbnail",
                "methods.ms.training.threads",
            )
        ),
        (
            "report.control",
            "mine",
            r":1: report\.control: mine is not in run\.methods\.[^$]*Name one of .*ms",
        ),
        ("export.scales", [1, 17], r":1: export\.scales: Input should be less than or equal to 16"),
        (
            "methods.ms.training.gradient_noise",
            "contrastive",
            r"training\.gradient_noise: this recipe has no loss term 'contrastive'[^$]*"
            r"Name one of multi_similarity, loss for their sum",
        ),
        (
            "sweep.ms",
            {"space": {"dim": {"uniform": [2, 9]}}, "trials": 10**9},
            r":1: sweep\.ms: the sweep has 1,000,000,000 trials, at most 10,000",
        ),
        (
            "sweep.ms",
            {"space": {f"a{axis}": {"grid": list(range(10))} for axis in range(5)}},
            r":1: sweep\.ms: the sweep has 100,000 trials, at most 10,000",
        ),
        (
            "sweep.ms",
            {"space": {f"a{axis}": {"grid": list(range(10))} for axis in range(9)}, "total": 2},
            r":1: sweep\.ms: the grids of the space have 1,000,000,000 combinations, at most 1,000,000",
        ),
        (
            "sweep.ms.space",
            {"dim": {"uniform": [2, 1]}},
            r":1: sweep\.ms\.space\.dim: uniform: .* must ascend",
        ),
    ],
)
def test_errors_of_later_stages_stop_the_run(folder: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check(plan(project(folder, {key: value})))


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
    require_schedule(Definitions(params), Training("parts", "ms", recipe, (0,)))
    assert re.search(
        r"note: ms on parts: The warm-up has 20 iterations, .* 4: .*parts\.yaml:\d+", capsys.readouterr().err
    )
    recipe = resolve(params, "parts", "ms", {"training.iterations": 20})
    require_schedule(Definitions(params), Training("parts", "ms", recipe, (0,)))
    assert capsys.readouterr().err == "", "a warm-up may last until the end"


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
