"""The command `unseen run`: `dvc repro` in sequence, or its stages in parallel, and the result of the run."""

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dvc_parallel.console import duration
from dvc_parallel.errors import RunError
from dvc_parallel.graph_lock import repair_graph_lock
from dvc_parallel.parallel import run as run_parallel
from dvc_parallel.sequence import run as run_in_sequence
from unseen.cli.clean import LOGS
from unseen.cli.needs import gpus_of_this_machine, needs, require_lists, slots
from unseen.cluster.connection import cluster_address
from unseen.cluster.launcher import RunCluster, resources
from unseen.config.document import Params
from unseen.config.resolve import settings
from unseen.config.stages import TrainSettings
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
