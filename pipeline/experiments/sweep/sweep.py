"""Runs a sweep: runs the unfinished trials under Ray Tune, records and prints every validation, writes the
results, prints the command that adopts the best values."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unseen.cluster.trials import Rungs, run_trials
from unseen.config.definitions import Definitions
from unseen.config.inputs import SweepInputs, digest
from unseen.config.stages import Search, TrainSettings
from unseen.data.shards import Shards
from unseen.experiments.sweep.outputs import adopting_command, best_of, table, write_results, write_times
from unseen.experiments.sweep.proposals import Proposals
from unseen.experiments.sweep.record import Trial, load, save, score_of
from unseen.methods.settings import Recipe
from unseen.runtime.files import atomic_directory, require_writable, write_json
from unseen.runtime.names import say
from unseen.training.job import Job, Loop, job_of
from unseen.training.state import identity

SKIPPED = "skipped.json"

_FIELDS = ("iteration", "epoch", "loss", "recall_at_1", "r_precision", "map_at_r", "seconds")


def sweep(
    definitions: Definitions,
    dataset: str,
    method: str,
    inputs: SweepInputs,
    concurrent: int,
    machine: TrainSettings,
    root: Path,
    output: Path,
    loop: Loop | None = None,
) -> str | None:
    """Sweeps `method` on `dataset` and writes trials.csv and best.json into `output`. Returns the
    command that adopts the best values. The times of the trials are a separate file,
    data/logs/<dataset>/<method>/sweep.json.

    Trials are compared by the recipe's selection metric on classes held out of training, with several seeds
    by its mean over them. Test classes are not read. A killed sweep continues with the unfinished trials;
    their records are in data/state/sweep. A sweep whose `datasets` do not contain the data set has no trials:
    it writes skipped.json and returns None.
    """
    times = root / "data/logs" / dataset / method / "sweep.json"
    if not inputs.trials:
        write_times(times, [])
        with atomic_directory(output) as directory:
            write_json(directory / SKIPPED, {"reason": f"sweep.{method}.datasets does not name {dataset}"})
        return None
    require_writable(output.parent, times.parent, root / "data/state")
    settings = Search(
        space=inputs.space,
        seed=inputs.seed,
        seeds=inputs.seeds,
        iterations=inputs.iterations,
        concurrent=concurrent,
        scheduler=inputs.scheduler,
        grace=inputs.grace,
        searcher=None if inputs.proposed is None else "optuna",
        total=inputs.proposed,
    )
    first = inputs.trials[0].recipe
    metric = first.training.selection_metric
    base = job_of(dataset, method, inputs.seeds[0], first, root, machine, inputs.training_code)
    state = base.root / "data/state/sweep" / dataset / method
    fingerprint = Shards(base.shards).fingerprint
    schedule = settings.model_dump(mode="json", exclude={"concurrent"})
    recipes = [(trial.recipe, seed) for trial in inputs.trials for seed in inputs.seeds]
    identities = [
        identity(job, fingerprint, machine.gpu, recipe.training.precision)
        for job, (recipe, _) in zip(jobs_of(base, recipes, state), recipes, strict=True)
    ]
    directory = state / digest({"jobs": identities, "settings": schedule})
    directory.mkdir(parents=True, exist_ok=True)
    trials = _run(inputs, settings, base, directory, machine, loop)
    command = adopting_command(definitions, dataset, method, best_of(trials, metric)[0].values)
    write_results(output, trials, metric, command)
    write_times(times, trials)
    shutil.rmtree(state, ignore_errors=True)  # also the state of sweeps with other settings
    sys.stdout.write(f"{table(trials, metric)}\n\nAdopt the best values with\n  {command}\n")
    sys.stdout.flush()
    return command


def _run(
    inputs: SweepInputs,
    settings: Search,
    base: Job,
    directory: Path,
    machine: TrainSettings,
    loop: Loop | None,
) -> list[Trial]:
    """Runs the unfinished trials: all at once, or round by round with proposed values."""
    metric = inputs.trials[0].recipe.training.selection_metric
    proposals = Proposals(settings, inputs.trials) if settings.searcher else None
    trials: list[Trial] = []
    recipes: list[tuple[Recipe, int]] = []
    batch = proposals.next([]) if proposals else inputs.trials
    while batch:
        recipes += [(trial.recipe, seed) for trial in batch for seed in inputs.seeds]
        values = [(trial.values, seed) for trial in batch for seed in inputs.seeds]
        new = load(directory, values, first=len(trials))
        trials += new
        done = sum(trial.finished for trial in new)
        earlier = f", {done} of them finished earlier" if done else ""
        say(f"sweep of {', '.join(settings.space)}: {len(new)} trials{earlier}")
        search(jobs_of(base, recipes, directory), trials, directory, settings, machine, metric, loop)
        groups = [new[first : first + len(inputs.seeds)] for first in range(0, len(new), len(inputs.seeds))]
        batch = proposals.next([score_of(group, metric) for group in groups]) if proposals else ()
    return trials


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
