"""Stage `sweep`: a search over recipe fields of one method on one data set -> all trials and the best values. Feeds no other stage."""

import os
from pathlib import Path

from pipeline.config import Params, SweepSettings, TrainSettings, settings
from pipeline.config.command import in_full
from pipeline.runtime.stage import main
from pipeline.studies.sweep.sweep import sweep


def run(dataset: str, method: str) -> None:
    """Searches the space of block sweep.<method> on a data set, judged on classes held out of training; goes on where a killed sweep stopped."""
    params = Params.of_stage()
    wanted, machine = settings(params, f"sweep.{method}", SweepSettings), settings(params, "train", TrainSettings)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = machine.cpus_per_worker or max(1, cores // wanted.concurrent)
    with in_full(params, dataset, method):
        sweep(params, dataset, method, wanted, machine, Path.cwd(), threads, Path("data/sweep", dataset, method))


if __name__ == "__main__":
    main(run, "dataset", "method")
