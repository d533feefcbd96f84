"""Runs the unfinished trials of a sweep under Ray Tune and records their reports."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unseen.cluster.trials import Rungs, run_trials
from unseen.config.stages import Search, TrainSettings
from unseen.experiments.sweep.record import Trial
from unseen.experiments.sweep.recorder import Recorder
from unseen.methods.settings import Recipe
from unseen.training.job import Job, Loop


def search(
    jobs: list[Job],
    trials: list[Trial],
    directory: Path,
    settings: Search,
    machine: TrainSettings,
    metric: str,
    loop: Loop | None = None,
) -> None:
    """Runs the unfinished trials, `settings.concurrent` at a time, and records their reports in `directory`.

    `jobs[i]` is the training of trial i. With scheduler `asha`, the first rung is after `settings.grace`
    validations. The error of a failed trial is recorded; the others continue. Raises UserError for a cluster
    without the resources.
    """
    unfinished = {trial.number: jobs[trial.number] for trial in trials if not trial.finished}
    if not unfinished:
        return
    concurrent = min(settings.concurrent, len(unfinished))
    grace = min(settings.grace * jobs[0].recipe.training.validate_every, settings.iterations)
    asha = settings.scheduler == "asha" and grace < settings.iterations
    rungs = Rungs(grace, settings.iterations) if asha else None
    recorder = Recorder(trials, directory, settings.iterations, metric)
    run_trials(
        unfinished,
        directory,
        concurrent=concurrent,
        gpu=machine.gpu,
        metric=metric,
        rungs=rungs,
        listener=recorder,
        loop=loop,
    )


def jobs_of(job: Job, trials: Sequence[tuple[Recipe, int]], directory: Path) -> list[Job]:
    """The job of each trial: `job` with the recipe and the seed of the trial and its own state directory. It
    writes no outputs."""
    return [
        replace(job, recipe=recipe, seed=seed, state=directory / f"{number:03d}", outputs=None)
        for number, (recipe, seed) in enumerate(trials)
    ]
