"""A miniature project, and the operations of the campaign: what runs, and its outputs.

Every operation runs in a fork with the project as working directory.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CELL = ("parts", "ms", 0)
FOLDS = (("parts", "ms", 1, 0), ("parts", "ms", 2, 0))
_SOURCE: dict[str, Any] = {"train_classes": 10, "test_classes": 4, "images_per_class": 4, "size": (40, 44)}


@dataclass(frozen=True)
class Operation:
    """`run` changes the files `outputs` (directories or files), and reads those of the operations before it.
    `modules`: imported before the fork."""

    name: str
    run: Callable[[], None]
    outputs: tuple[str, ...]
    modules: tuple[str, ...]
    unstable: tuple[str, ...] = ()  # outputs whose bytes contain times
    scratch: tuple[str, ...] = ("data/state",)  # removed before each case
    replaces: bool = True  # earlier outputs of other bytes exist
    after: tuple[str, ...] = ()  # the operations whose outputs it reads


def write_project(folder: Path, network: str = "test_resnet", several: bool = False) -> None:
    """params.yaml and the folders of a project with 10 + 4 drawn classes, four steps of training.

    With `several` trainings of a method it has a sweep of two trials and an ensemble of two folds.
    """
    yaml = YAML()
    params = yaml.load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    params["run"].update({"methods": ["ms"], "sweeps": []})
    if several:
        params["run"].update({"sweeps": ["ms"], "ensembles": ["ms"]})
        params["sweep"] = {"ms": {"space": {"dim": {"grid": [4, 8]}}, "iterations": 2}}
        params["ensemble"].update({"folds": [1, 2], "seeds": [0], "recall_at": [1, 2]})
    params["train"].update({"checkpoint_every": 2, "loader_threads": 1})
    params["evaluate"].update({"recall_at": [1, 2]})
    params["analyze"].update({"pairs": 200, "transfer_splits": 4})
    params["report"].update({"queries": 2, "neighbours": 2})
    recipe = {
        "backbone": {"name": network},
        "input": {"size": 32, "resize": 36},
        "batch": {"classes": 2, "images_per_class": 2},
        "training": {"iterations": 4, "validate_every": 2},
    }
    source = _SOURCE | {"size": list(_SOURCE["size"])}
    params["datasets"]["parts"] = {"source": source, "recipe": recipe}
    (folder / "data/raw/parts").mkdir(parents=True, exist_ok=True)
    with (folder / "params.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(params, file)


def _stage(name: str, *cells: tuple[Any, ...]) -> Callable[[], None]:
    """Runs a stage for each cell."""

    def run() -> None:
        stage = import_module(f"unseen.stages.{name}")
        for cell in cells or ((),):
            stage.run(*cell)

    return run


def _records() -> None:
    """Writes the records, results and times of a sweep of two trials, whose metrics are given."""
    from unseen.experiments.sweep.outputs import write_results, write_times
    from unseen.experiments.sweep.record import load, save

    field, directory = "pooling.transport_ratio", Path("data/state/sweep")
    directory.mkdir(parents=True, exist_ok=True)
    trials = load(directory, [({field: 0.1}, 0), ({field: 0.3}, 0)])
    for trial in trials:
        scores = dict.fromkeys(("recall_at_1", "r_precision", "map_at_r"), trial.values[field])
        for iteration in (1.0, 2.0):
            trial.add({"iteration": iteration, "epoch": 0.5, "loss": 1.0, **scores, "seconds": 1.0})
            save(directory, trial)
        trial.finished = True
        save(directory, trial)
    write_results(Path("data/sweep/parts/gsp"), trials, "map_at_r", "command")
    write_times(Path("data/logs/parts/gsp/sweep.json"), trials)


def _photos(project: Path) -> None:
    """Six test images as files."""
    from unseen.data.shards import Shards

    shards = Shards(project / "data/shards/parts")
    for row in shards.rows("test")[:6].tolist():
        path = project / "photos" / f"{row}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(shards.image(row).tobytes())
        os.utime(path, (1e9, 1e9))  # a catalog does not trust the time of a file that is seconds old


def _build() -> None:
    from unseen_search.indexing import write_catalog

    model = Path("data/models", *map(str, CELL))
    write_catalog(Path("photos"), Path("data/catalog"), model, kind=None, labels=None, skip_damaged=False)


def _find() -> None:
    from unseen_search.catalog.thresholds import Asked
    from unseen_search.search import find_photos

    picture = sorted(Path("photos").iterdir())[0]
    html = Path("data/matches.html")
    sys.stdout.write(find_photos(Path("data/catalog"), [picture], 2, html, Asked(), as_json=False))


def _outputs_of_fold(model: int, *kinds: str) -> tuple[str, ...]:
    from unseen.experiments.folds.members import Member

    suffixes = {"models": "", "history": ".csv", "logs": ".json", "embeddings": ".arrow"}
    member = Member(*CELL[:2], model, len(FOLDS), CELL[2])
    return tuple(member.file(kind, suffixes[kind]).as_posix() for kind in kinds)


_NAME = "/".join(map(str, CELL))
OPERATIONS = (
    Operation(
        "resolve",
        _stage("resolve"),
        outputs=("data/resolved",),
        modules=("unseen.stages.resolve", "unseen.methods.compatibility"),
    ),
    Operation(
        "ingest",
        _stage("ingest", ("parts",)),
        after=("resolve",),
        outputs=("data/shards/parts",),
        modules=("unseen.stages.ingest", "unseen.data.ingest.sources.parts"),
    ),
    Operation(
        "sweep records",
        _records,
        outputs=("data/sweep/parts/gsp", "data/logs/parts/gsp/sweep.json"),
        modules=("unseen.experiments.sweep.outputs",),
    ),
    Operation(
        "train",
        _stage("train", CELL),
        after=("ingest",),
        outputs=(f"data/models/{_NAME}", f"data/history/{_NAME}.csv", f"data/logs/{_NAME}.json"),
        modules=("unseen.stages.train", "unseen.training.loop"),
        unstable=(f"data/logs/{_NAME}.json",),
    ),
    Operation(
        "export",
        _stage("export", CELL),
        after=("train",),
        outputs=(f"data/embeddings/{_NAME}", f"data/positions/{_NAME}.arrow"),
        modules=("unseen.stages.export",),
    ),
    Operation(
        "evaluate",
        _stage("evaluate", CELL),
        after=("export",),
        outputs=(f"data/evaluation/{_NAME}", f"data/metrics/{_NAME}.json"),
        modules=("unseen.stages.evaluate",),
    ),
    Operation(
        "analyze",
        _stage("analyze", CELL),
        after=("export",),
        outputs=(f"data/analysis/{_NAME}.json", f"data/metrics/{_NAME}-analysis.json"),
        modules=("unseen.stages.analyze",),
    ),
    Operation(
        "report",
        _stage("report"),
        after=("evaluate", "analyze"),
        outputs=("data/report",),
        modules=("unseen.stages.report",),
    ),
    Operation(
        "catalog build",
        _build,
        after=("train",),
        outputs=("data/catalog",),
        modules=("unseen_search.indexing",),
        scratch=("data/catalog.unfinished",),
        replaces=False,
    ),
    Operation(
        "catalog find",
        _find,
        after=("catalog build",),
        outputs=("data/matches.html",),
        modules=("unseen_search.search",),
    ),
    Operation(
        "sweep",
        _stage("sweep", CELL[:2]),
        after=("ingest",),
        outputs=("data/sweep/parts/ms", "data/logs/parts/ms/sweep.json"),
        modules=("unseen.stages.sweep", "unseen.training.loop"),
        unstable=("data/logs/parts/ms/sweep.json",),
    ),
    Operation(
        "train_fold",
        _stage("train_fold", FOLDS[0]),
        after=("ingest",),
        outputs=_outputs_of_fold(1, "models", "history", "logs"),
        modules=("unseen.stages.train_fold", "unseen.training.loop"),
        unstable=_outputs_of_fold(1, "logs"),
    ),
    Operation(
        "export_fold",
        _stage("export_fold", FOLDS[0]),
        after=("train_fold",),
        outputs=_outputs_of_fold(1, "embeddings"),
        modules=("unseen.stages.export_fold",),
    ),
    Operation(
        "ensemble",
        _stage("ensemble", CELL[:2]),
        after=("export_fold",),
        outputs=("data/ensemble/parts/ms", "data/metrics/parts/ms/ensemble.json"),
        modules=("unseen.stages.ensemble",),
    ),
)


def required(names: list[str]) -> list[Operation]:
    """The operations with these names, all if there are none, and those whose outputs they read, in order."""
    by_name = {operation.name: operation for operation in OPERATIONS}
    reached = set(names or by_name)
    for operation in reversed(OPERATIONS):
        if operation.name in reached:
            reached |= set(operation.after)
    return [operation for operation in OPERATIONS if operation.name in reached]


def _read_code(project: Path) -> None:
    """Reads the modules of the stages, whose digests `resolve` computes and each stage compares. A process
    reads each text once."""
    from unseen.runtime.code import code_of

    modules = {name for operation in OPERATIONS for name in operation.modules}
    code_of(ROOT / "pipeline").closure(name for name in modules if name.startswith("unseen."))


def _draw(project: Path) -> None:
    """Draws the images. The cases of `ingest` read these: drawing uses no file."""
    from unseen.data.ingest.settings import PartsSource
    from unseen.data.ingest.sources import parts

    source = PartsSource(**_SOURCE)
    looks = parts.classes(source)
    cells = product(range(len(looks)), range(source.images_per_class))
    drawn = {cell: parts.photograph(source, looks, *cell) for cell in cells}
    parts.photograph = lambda _source, _looks, label, image: drawn[label, image]


def _resolve_several(project: Path) -> None:
    """The settings of several trainings, and their resolved files. Last: the operations before have those of
    one training."""
    from tests.torture import network

    write_project(project, network.NAME, several=True)
    _forked(_stage("resolve"), project)


def _second_fold(project: Path) -> None:
    """The other fold of the ensemble."""
    _forked(_stage("train_fold", FOLDS[1]), project)
    _forked(_stage("export_fold", FOLDS[1]), project)


def _forked(stage: Callable[[], None], project: Path) -> None:
    """Runs a stage in a fork: the threads of a training in this process would not exist in later forks."""
    from tests.torture.file_operations import run

    ended = run(Operation("preparation", stage, (), ()), project)
    if ended.status != 0:
        raise RuntimeError(ended.output)


# runs once, in the process that starts the cases, before the operation
PREPARATION = {
    "resolve": _read_code,
    "ingest": _draw,
    "catalog build": _photos,
    "sweep": _resolve_several,
    "train_fold": _resolve_several,
    "ensemble": _second_fold,
}
