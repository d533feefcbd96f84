"""Runs the unfinished trials of a sweep under Ray Tune; records and prints every validation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unseen.cluster.trials import Rungs, run_trials
from unseen.config.stages import Search, TrainSettings
from unseen.experiments.sweep.record import Trial, save
from unseen.methods.settings import Recipe
from unseen.runtime.names import say
from unseen.training.job import Job, Loop

_FIELDS = ("iteration", "epoch", "loss", "recall_at_1", "r_precision", "map_at_r", "seconds")


class Recorder:
    """The listener of a sweep (pipeline/cluster/trials.py): `records[i]` is trial i."""

    def __init__(self, records: list[Trial], directory: Path, iterations: int, metric: str) -> None:
        self.records, self.directory = records, directory
        self.iterations, self.metric = iterations, metric
        self.ended: set[int] = set()

    def reported(self, trial: int, result: dict[str, Any]) -> None:
        record = self.records[trial]
        if "error" in result:
            record.error = result["error"]
            say(f"trial {trial} failed: {record.error_line}")
        elif "iteration" in result:
            self._validated(record, result)
        self.ended |= {trial} if "ended" in result else set()
        save(self.directory, record)

    def completed(self, trial: int) -> None:
        record = self.records[trial]
        record.finished = True
        record.stopped_early = record.error is None and trial not in self.ended
        save(self.directory, record)

    def died(self, trial: int, reason: str) -> None:
        record = self.records[trial]
        record.finished, record.error = True, f"its process ended, twice: {reason}"
        say(f"trial {trial} failed: {record.error_line}")
        save(self.directory, record)

    def _validated(self, record: Trial, result: dict[str, Any]) -> None:
        if not record.add({name: float(result[name]) for name in _FIELDS}):
            return
        values = ", ".join(f"{field} {value}" for field, value in record.values.items())
        values += f", seed {record.seed}" if len({other.seed for other in self.records}) > 1 else ""
        numbers = f"loss {result['loss']:.4g}  {self.metric} {result[self.metric]:.4f}"
        iteration = f"iteration {result['iteration']}/{self.iterations}"
        say(f"trial {record.number} ({values}): {iteration}  {numbers}")


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
