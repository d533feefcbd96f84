"""A sweep from its inputs to its outs: run the trials that are missing, write the results, print the line
that adopts them."""

import shutil
import sys
from pathlib import Path

from pipeline.config import Params, TrainSettings
from pipeline.config.inputs import SweepInputs, digest
from pipeline.config.stages import Search
from pipeline.data.shards import Shards
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.studies.sweep.outputs import adopting_line, best_of, table, write_results
from pipeline.studies.sweep.record import load
from pipeline.studies.sweep.search import jobs_of, search
from pipeline.training.job import Loop, job_of
from pipeline.training.state import identity


def sweep(
    params: Params,
    dataset: str,
    method: str,
    inputs: SweepInputs,
    concurrent: int,
    machine: TrainSettings,
    root: Path,
    threads: int,
    output: Path,
    loop: Loop | None = None,
) -> str | None:
    """Sweeps `method` on `dataset` and writes trials.csv, sweep.svg and best.json into `output`; returns the
    line that adopts the best values.

    Trials are compared by the recipe's selection metric on classes held out of training: test classes are
    never read. A killed sweep continues with the trials that are missing, under data/state/sweep. Where the
    sweep does not name the data set, it has no trials: `output` contains skipped.json, and None is returned.
    """
    if not inputs.trials:
        with atomic_directory(output) as directory:
            write_json(directory / SKIPPED, {"reason": f"sweep.{method}.datasets does not name {dataset}"})
        return None
    settings = Search(
        space=inputs.space,
        seed=inputs.seed,
        iterations=inputs.iterations,
        concurrent=concurrent,
        scheduler=inputs.scheduler,
        grace=inputs.grace,
    )
    recipes = [trial.recipe for trial in inputs.trials]
    metric = recipes[0].training.selection_metric
    base = job_of(
        dataset,
        method,
        inputs.seed,
        recipes[0],
        root,
        threads=threads,
        loader_threads=machine.loader_threads,
        checkpoint_every=machine.checkpoint_every,
        code=inputs.training_code,
    )
    state = base.root / "data/state/sweep" / dataset / method
    fingerprint = Shards(base.shards).fingerprint
    schedule = settings.model_dump(mode="json", exclude={"concurrent"})
    identities = [identity(job, fingerprint, 1, machine.gpu) for job in jobs_of(base, recipes, state)]
    directory = state / digest({"jobs": identities, "settings": schedule})
    directory.mkdir(parents=True, exist_ok=True)
    trials = load(directory, [trial.values for trial in inputs.trials])
    done = sum(trial.finished for trial in trials)
    before = f", {done} of them finished earlier" if done else ""
    sys.stderr.write(f"sweep of {', '.join(settings.space)}: {len(trials)} trials{before}\n")
    search(jobs_of(base, recipes, directory), trials, directory, settings, machine, metric, loop)

    line = adopting_line(params, dataset, method, best_of(trials, metric).values)
    write_results(output, trials, settings, metric, f"{method} on {dataset}", line)
    shutil.rmtree(state, ignore_errors=True)  # with what sweeps of other settings left
    sys.stdout.write(f"{table(trials, metric)}\n\nadopt the best with\n  {line}\n")
    sys.stdout.flush()
    return line


SKIPPED = "skipped.json"
