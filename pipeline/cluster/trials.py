"""Trainings of a sweep, `concurrent` of them at the same time: under Ray Tune, one process each, or, one at a
time on this machine, in this process without a cluster.

A trial trains on one worker, for any `train.workers`: the loss is that of the global batch either way, and a
trial that is stopped leaves nothing reserved. The cluster is filled with trials, not with the workers of one.

ASHA (Li et al. 2020): at a rung of r, 3r, 9r ... iterations a trial continues only if it is in the upper
third of those that reached the rung. Rungs count the iterations that a trial reports, never Tune's own count
of reports, which restarts when a trial is resumed.
"""

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from unseen.cluster.connection import cluster_address, connection, imported, run_cluster_address
from unseen.cluster.devices import device_here, usable_gpu
from unseen.cluster.listener import Listener
from unseen.runtime.errors import UserError
from unseen.runtime.files import system_problem
from unseen.runtime.memory import memory_problem
from unseen.training.job import Job, Loop

if TYPE_CHECKING:
    import torch

_REDUCTION = 3


@dataclass(frozen=True)
class Rungs:
    """ASHA: the first rung r, and the iterations of the longest trial."""

    first: int
    last: int


def run_trials(
    jobs: Mapping[int, Job],
    directory: Path,
    concurrent: int,
    gpu: str,
    metric: str,
    rungs: Rungs | None,
    listener: Listener,
    loop: Loop | None = None,
) -> None:
    """Runs all jobs, `concurrent` at a time. `gpu` is train.gpu; Tune keeps its files under `directory`.

    With `rungs`, trials whose `metric` is low are stopped early. A trial whose process died runs again
    from its checkpoint, unless it died before with the same last validation. Raises UserError for a cluster
    without the resources.
    """
    if concurrent == 1 and cluster_address() is None and run_cluster_address() is None:
        _run_here(jobs, gpu, _scheduler(metric, rungs) if rungs else None, listener, loop)
        return
    threads = max(job.threads for job in jobs.values())
    with imported("torch", "pandas"), connection(concurrent, gpu != "no") as cluster:
        bundle = cluster.claim(concurrent, threads, usable_gpu(gpu, cluster))
        from ray import tune

        from unseen.cluster.tune_events import Events

        trainable: Any = tune.with_parameters(run_trial, jobs=dict(jobs), gpu="GPU" in bundle, loop=loop)
        # Tune warns about the files of its loggers, which are disabled.
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        notes = tempfile.mkdtemp(prefix="tune-", dir=directory)
        try:
            tune.Tuner(
                tune.with_resources(trainable, tune.PlacementGroupFactory([bundle])),
                param_space={"trial": tune.grid_search(list(jobs))},
                tune_config=tune.TuneConfig(
                    scheduler=_scheduler(metric, rungs), max_concurrent_trials=concurrent, reuse_actors=True
                ),
                run_config=tune.RunConfig(
                    name="tune",
                    storage_path=notes,
                    verbose=0,
                    failure_config=tune.FailureConfig(max_failures=1),
                    callbacks=[Events(listener)],
                ),
            ).fit()
        finally:
            shutil.rmtree(notes, ignore_errors=True)


class _Stopped(BaseException):
    """Ends a training that the scheduler stops."""


def _run_here(
    jobs: Mapping[int, Job], gpu: str, scheduler: Any, listener: Listener, loop: Loop | None
) -> None:
    """Runs the jobs one after the other in this process. `scheduler` is one of Tune, without its cluster."""
    device, console = device_here(gpu), sys.stderr
    for number, job in jobs.items():
        trial = SimpleNamespace(trial_id=str(number))
        if scheduler is not None:
            scheduler.on_trial_add(None, trial)

        def report(result: dict[str, Any], number: int = number, trial: Any = trial) -> None:
            with contextlib.redirect_stderr(console):
                listener.reported(number, result)
            if scheduler is not None and scheduler.on_trial_result(None, trial, result) == scheduler.STOP:
                raise _Stopped

        with contextlib.suppress(_Stopped):
            _train(job, device, loop, report)
        listener.completed(number)


def _scheduler(metric: str, rungs: Rungs | None) -> Any:
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    if rungs is None:
        return FIFOScheduler()
    return ASHAScheduler(
        time_attr="iteration",
        metric=metric,
        mode="max",
        max_t=rungs.last + 1,
        grace_period=rungs.first,
        reduction_factor=_REDUCTION,
    )


def run_trial(config: dict[str, int], jobs: dict[int, Job], gpu: bool, loop: Loop | None) -> None:
    """The body of a trial, in a process of Tune."""
    import torch
    from ray import tune

    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    _train(jobs[config["trial"]], device, loop, tune.report)


def _train(
    job: Job, device: "torch.device", loop: Loop | None, report: Callable[[dict[str, Any]], None]
) -> None:
    """Trains, and reports each validation with its seconds, and then the end or the text of the error. Raises
    an error of a file or disk, which tells nothing about the values of the trial."""
    if loop is None:
        from unseen.training.loop import train

        loop = train
    start = time.monotonic()

    def validated(metrics: dict[str, Any]) -> None:
        report({**metrics, "seconds": time.monotonic() - start})

    try:
        # The stage shows one line per validation.
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):
            loop(job, 0, 1, device, validated)
        report({"ended": True})
    except Exception as error:
        if _is_of_a_file(error.__cause__ if isinstance(error, UserError) else error):
            raise
        report({"error": str(error) if isinstance(error, UserError) else traceback.format_exc()})


def _is_of_a_file(error: BaseException | None) -> bool:
    """Whether Python, or a library in its text, names a problem of a file or disk. Memory is none: a trial
    with a large batch needs more."""
    if not isinstance(error, Exception) or memory_problem(error) is not None:
        return False
    return isinstance(error, OSError) or system_problem(error) is not None
