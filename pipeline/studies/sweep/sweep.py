"""A sweep from its settings to its outs: draw, check, run what is missing, write, say what to do with it."""

import shutil
import sys
from pathlib import Path

from pipeline.config import Params, SweepSettings, TrainSettings
from pipeline.data.shards import Shards
from pipeline.studies.sweep.outputs import adopting_line, best_of, table, write_results
from pipeline.studies.sweep.record import load
from pipeline.studies.sweep.search import jobs_of, search
from pipeline.studies.sweep.space import draw, recipes
from pipeline.training.job import Loop, job_of
from pipeline.training.state import digest, identity


def sweep(
    params: Params,
    dataset: str,
    method: str,
    settings: SweepSettings,
    machine: TrainSettings,
    root: Path,
    threads: int,
    output: Path,
    loop: Loop | None = None,
) -> str:
    """Sweeps `method` on `dataset` and writes trials.csv, sweep.svg and best.json into `output`; returns the line that adopts the best values.

    Trials are judged by the recipe's selection metric on classes held out of training: test classes are never read. A killed sweep goes on with
    the trials that are missing, under data/state/sweep. Raises UserError for a field that is none, before anything starts.
    """
    values = draw(settings)
    wanted = recipes(params, dataset, method, settings, values)
    metric = wanted[0].training.selection_metric
    base = job_of(dataset, method, settings.seed, wanted[0], root, threads, machine.loader_threads)
    state = base.root / "data/state/sweep" / dataset / method
    fingerprint = Shards(base.shards).fingerprint
    schedule = settings.model_dump(mode="json", exclude={"concurrent"})
    directory = state / digest({"jobs": [identity(job, fingerprint, 1, machine.gpu) for job in jobs_of(base, wanted, state)], "settings": schedule})
    directory.mkdir(parents=True, exist_ok=True)
    trials = load(directory, values)
    done = sum(trial.finished for trial in trials)
    sys.stderr.write(f"sweep of {', '.join(settings.space)}: {len(trials)} trials" + (f", {done} done before\n" if done else "\n"))
    search(jobs_of(base, wanted, directory), trials, directory, settings, machine, metric, loop)

    line = adopting_line(params, dataset, method, best_of(trials, metric).values)
    write_results(output, trials, settings, metric, f"{method} on {dataset}", line)
    shutil.rmtree(state, ignore_errors=True)  # with what sweeps of other settings left behind
    sys.stdout.write(f"{table(trials, metric)}\n\nadopt the best with\n  {line}\n")
    sys.stdout.flush()
    return line
