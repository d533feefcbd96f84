"""The command `unseen run`: `dvc repro` in sequence, or its stages in parallel, and the result of the run."""

import itertools
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dvc_parallel.console import duration
from dvc_parallel.errors import RunError
from dvc_parallel.graph_lock import repair_graph_lock
from dvc_parallel.parallel import run as run_parallel
from dvc_parallel.sequence import run as run_in_sequence
from unseen.cli.clean import LOGS
from unseen.cluster.connection import cluster_address
from unseen.cluster.launcher import RunCluster, resources
from unseen.config.document import Params
from unseen.config.resolve import settings, sweep_settings
from unseen.config.stages import ExportSettings, TrainSettings
from unseen.experiments.catalogue import definitions
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error
from unseen.runtime.leftovers import remove_leftovers
from unseen.runtime.stage import PACKAGE, ROOT
from unseen.runtime.version_lock import require_accepted

_WITHOUT_RESULT = {"--dry", "-h", "--help", "-s", "--single-item"}
_CLUSTER_LOG = LOGS / "cluster.log"


def run(arguments: Sequence[str], jobs: int | None) -> int:
    """Runs `dvc repro` with these arguments, with up to `jobs` stages at a time; returns its exit status.

    Default of `jobs`: as many trainings as the cluster of RAY_ADDRESS can run at a time, 1 without a cluster.
    1 is `dvc repro` itself. Prints the result of a successful run that includes stage `report`.
    """
    began = time.monotonic()
    options = [argument for argument in arguments if argument.startswith("-")]
    targets = [argument for argument in arguments if not argument.startswith("-")]
    params = Params()
    require_lists(params)
    require_accepted(ROOT, PACKAGE)
    remove_leftovers(Path())
    with unwritable_is_an_error(Path("dvc.lock")):
        repair_graph_lock()
    if jobs != 1 and (jobs is not None or cluster_address() is not None):
        _require_number_of_workers(params)
    if cluster_address() is not None:
        of_cluster = resources(_CLUSTER_LOG)
        jobs = slots(params, *of_cluster) if jobs is None else jobs
    try:
        if jobs is None or jobs == 1:
            status = run_in_sequence(arguments)
        else:
            status = _in_parallel(params, targets, options, jobs)
    except RunError as error:
        raise UserError(error.what, error.remedy) from error
    if status == 0 and not _WITHOUT_RESULT & set(options) and (not targets or "report" in targets):
        from unseen.cli.result import result

        sys.stdout.write(
            "\n".join(["", *result(), f"total duration: {duration(time.monotonic() - began)}", ""])
        )
    return status


def _require_number_of_workers(params: Params) -> None:
    """Raises UserError if each training takes all GPUs: parallel stages would wait for each other."""
    if settings(params, "train", TrainSettings).workers == "auto":
        raise UserError(
            "train.workers is auto: each training takes all GPUs, so that stages cannot share them.",
            "Set train.workers to a number, or run one stage at a time (`unseen run -j 1`).",
        )


def _in_parallel(params: Params, targets: Sequence[str], options: Sequence[str], jobs: int) -> int:
    needed = needs(params, gpus_of_this_machine())
    cluster = RunCluster(jobs * max(1, needed.highest), lambda stage: needed.of(stage) > 0, _CLUSTER_LOG)

    def prepare(stage: str) -> Mapping[str, str] | None:
        try:
            return cluster.environment(stage)
        except UserError as error:
            raise RunError(error.what, error.remedy) from error

    return run_parallel(targets, options, jobs, prepare, cluster.end, LOGS)


_RUN = ("datasets", "methods", "seeds", "sweeps", "ensembles")
_AXES = (*(f"run.{axis}" for axis in _RUN), "ensemble.folds", "ensemble.seeds")


@dataclass(frozen=True)
class Needs:
    """The processes of Ray that one stage has at a time: 0 for a stage without Ray."""

    train: int
    export: int
    sweep: int

    def of(self, stage: str) -> int:
        """The processes of a stage such as `train@parts-ms-0` or `train_fold@parts-ms-1-0`."""
        return int(getattr(self, stage.partition("@")[0].removesuffix("_fold"), 0))

    @property
    def highest(self) -> int:
        return max(self.train, self.export, self.sweep)


def needs(params: Params, gpus: int) -> Needs:
    """The needs of parallel stages on a machine with `gpus` GPUs.

    Where the machine has GPUs, Ray also starts trainings, sweeps and exports of one process: it gives each a
    GPU of its own.
    Raises UserError for a mistake in a block.
    """
    train = settings(params, "train", TrainSettings)
    export = settings(params, "export", ExportSettings)
    on_gpus = gpus > 0 and train.gpu != "no"
    names = params.read("run.sweeps")
    trials = max((sweep_settings(definitions(params), name).concurrent for name in names), default=0)
    return Needs(
        train=train.most_workers if train.most_workers > 1 or on_gpus else 0,
        export=export.workers if export.workers > 1 or gpus > 0 else 0,
        sweep=trials if trials > 1 or on_gpus else 0,
    )


def slots(params: Params, cpus: int, gpus: int) -> int:
    """How many trainings a cluster with `cpus` CPUs and `gpus` GPUs runs at the same time, at least 1.

    On CPUs, those with the largest training.threads of the recipes of the run.
    """
    train = settings(params, "train", TrainSettings)
    if gpus and train.gpu != "no":
        return max(1, gpus // train.most_workers)
    cells = itertools.product(params.read("run.datasets"), params.read("run.methods"))
    known = definitions(params)
    threads = max(known.layers(*cell).recipe().training.threads for cell in cells)
    return max(1, cpus // (train.most_workers * threads))


def gpus_of_this_machine() -> int:
    """GPUs of NVIDIA. Their device files are counted, because torch takes seconds to import."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in Path("/dev").glob("nvidia*"))


def require_lists(params: Params) -> None:
    """Raises UserError for an axis of the graph that is a single value. DVC's message for it does not name
    the axis: 'Value' object is not iterable."""
    for axis in _AXES:
        block, _, name = axis.partition(".")
        value = params.block(block).get(name)
        if value is not None and not isinstance(value, list):
            raise UserError(
                f"{params.label}:{params.line(axis)}: {axis} is {value}, which is not a list.",
                f"Write it as a list: {name}: [{value}].",
            )
