"""Trials under Ray Tune, one process each, `concurrent` of them side by side.

A trial trains on one worker, whatever `train.workers` says: the loss is that of the global batch either way, and a trial that is stopped leaves
nothing reserved. The cluster is filled with trials, not with the workers of one.

ASHA (Li et al. 2020): at a rung of r, 3r, 9r ... iterations (r = `grace` validations) a trial goes on only if it is in the upper third of those
that came that far. Rungs count the iterations that a trial reports, never Tune's own count of reports, which starts anew when a trial is resumed.
"""

import contextlib
import logging
import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.cluster.connection import connection
from pipeline.cluster.training import Loop, imported, usable_gpu
from pipeline.config import Recipe, TrainSettings
from pipeline.config.stages import Search
from pipeline.runtime.errors import UserError
from pipeline.studies.sweep.record import Trial
from pipeline.training.job import Job

_REDUCTION = 3


def search(
    jobs: list[Job], trials: list[Trial], directory: Path, settings: Search, machine: TrainSettings, metric: str, loop: Loop | None = None
) -> None:
    """Runs the unfinished trials, `settings.concurrent` at a time, and records them in `directory` as they go. `jobs[i]` is what trial i trains.

    A failed trial keeps its error, the others go on. Raises UserError for a cluster without the resources.
    """
    todo = [trial.number for trial in trials if not trial.finished]
    if not todo:
        return
    concurrent = min(settings.concurrent, len(todo))
    with imported("torch", "pandas"), connection(concurrent, machine.gpu != "no") as cluster:
        bundle = cluster.claim(concurrent, jobs[0].threads, usable_gpu(machine.gpu, cluster))
        _tune(jobs, trials, todo, directory, concurrent, settings, bundle, metric, loop)


def _tune(
    jobs: list[Job],
    trials: list[Trial],
    todo: list[int],
    directory: Path,
    concurrent: int,
    settings: Search,
    bundle: dict[str, float],
    metric: str,
    loop: Loop | None,
) -> None:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    from pipeline.studies.sweep.recorder import Recorder

    longest = jobs[0].resolved().training
    grace = min(settings.grace * longest.validate_every, settings.iterations)
    asha = settings.scheduler == "asha" and grace < settings.iterations
    scheduler = (
        ASHAScheduler(
            time_attr="iteration", metric=metric, mode="max", max_t=settings.iterations + 1, grace_period=grace, reduction_factor=_REDUCTION
        )
        if asha
        else FIFOScheduler()
    )
    resources: Any = tune.PlacementGroupFactory([bundle])
    logging.getLogger("ray.tune").setLevel(logging.ERROR)  # it misses files that its own loggers, which are off, would have written
    notes = Path(tempfile.mkdtemp(prefix="tune-", dir=directory))
    try:
        tune.Tuner(
            tune.with_resources(tune.with_parameters(run_trial, jobs=jobs, gpu="GPU" in bundle, loop=loop), resources),
            param_space={"trial": tune.grid_search(todo)},
            tune_config=tune.TuneConfig(scheduler=scheduler, max_concurrent_trials=concurrent, reuse_actors=True),
            run_config=tune.RunConfig(
                name="tune",
                storage_path=str(notes),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=1),  # a trial whose process died; it resumes from its own checkpoint
                callbacks=[Recorder(trials, directory, settings.iterations, metric)],
            ),
        ).fit()
    finally:
        shutil.rmtree(notes, ignore_errors=True)


def run_trial(config: dict[str, int], jobs: list[Job], gpu: bool, loop: Loop | None) -> None:
    """The body of a trial, in a process of Tune. An error ends it with a last report, so that it is recorded as it was said."""
    import torch
    from ray import tune

    if loop is None:
        from pipeline.training.loop import train

        loop = train
    start = time.monotonic()

    def report(metrics: dict[str, Any]) -> None:
        tune.report({**metrics, "seconds": time.monotonic() - start})

    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    try:
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stderr(nowhere):  # the stage shows one line per validation
            loop(jobs[config["trial"]], 0, 1, device, report)
        tune.report({"ended": True})  # by itself: a trial that the scheduler stops does not come here
    except UserError as error:
        tune.report({"error": str(error)})
    except Exception:
        tune.report({"error": traceback.format_exc()})


def jobs_of(job: Job, recipes: Sequence[Recipe], directory: Path) -> list[Job]:
    """The job of each trial: the same but for its recipe and the root of its state; it writes no outs."""
    return [
        replace(job, recipe=recipe.model_dump(mode="json"), state=directory / f"{number:03d}", outputs=None) for number, recipe in enumerate(recipes)
    ]
