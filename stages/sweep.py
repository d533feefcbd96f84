"""A search over recipe fields of one method on one data set -> all trials and the best values. Feeds no other
stage."""

from pathlib import Path

from pipeline.config import Params, TrainSettings, settings, sweep_settings
from pipeline.config.command import field_origins
from pipeline.config.inputs import SweepInputs, read_inputs
from pipeline.runtime.cores import usable_cores
from pipeline.runtime.stage import main
from pipeline.studies.sweep.sweep import sweep


def run(dataset: str, method: str) -> None:
    """Searches the space of a sweep on a data set, judged on classes held out of training; continues where a
    killed sweep stopped."""
    params, inputs = Params(), read_inputs(SweepInputs, "sweep", dataset, method).settings
    machine, concurrent = settings(params, "train", TrainSettings), sweep_settings(params, method).concurrent
    cores = usable_cores()
    threads = machine.cpus_per_worker or max(1, cores // concurrent)
    with field_origins(params, dataset, method):
        sweep(
            params,
            dataset,
            method,
            inputs,
            concurrent,
            machine,
            Path.cwd(),
            threads,
            Path("data/sweep", dataset, method),
        )


if __name__ == "__main__":
    main(run, "dataset", "method")
