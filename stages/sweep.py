"""Shards -> all trials of a search over recipe fields of one method on one data set, and the best values. No
other stage depends on it."""

from pathlib import Path

from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.inputs import SweepInputs, read_inputs
from unseen.config.resolve import concurrent_trials, settings
from unseen.config.stages import TrainSettings
from unseen.experiments.sweep.sweep import sweep
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.stage import main


def run(dataset: str, method: str) -> None:
    """Sweeps a method on a data set and compares the trials on classes held out of training.

    Resumes a killed sweep.
    """
    known, inputs = Definitions(Params()), read_inputs(SweepInputs, "sweep", dataset, method).settings
    machine, concurrent = settings(known.params, "train", TrainSettings), concurrent_trials(known, method)
    loader_threads = machine.loader_threads or loader_threads_of(concurrent)
    machine = machine.model_copy(update={"loader_threads": loader_threads})
    output = Path("data/sweep", dataset, method)
    with field_origins(known, dataset, method):
        sweep(
            known,
            dataset,
            method=method,
            inputs=inputs,
            concurrent=concurrent,
            machine=machine,
            root=Path.cwd(),
            output=output,
        )


if __name__ == "__main__":
    main(run, "dataset", "method")
