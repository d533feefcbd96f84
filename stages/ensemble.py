"""Stage `ensemble`: the MLRC protocol of one method on one data set -> folds x repeats members, their ensembles, mean and spread."""

import os
from pathlib import Path

from pipeline.config import EnsembleSettings, Params, TrainSettings, resolve, settings
from pipeline.config.command import in_full
from pipeline.runtime.stage import main
from pipeline.studies.ensemble.ensemble import ensemble
from pipeline.training.job import say_unwatched


def run(dataset: str, method: str) -> None:
    """Trains a method on every fold of the train classes, several times, and judges all ensembles; goes on where a killed run stopped."""
    params = Params.of_stage()
    recipe = resolve(params, dataset, method)
    wanted, machine = settings(params, "ensemble", EnsembleSettings), settings(params, "train", TrainSettings)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with in_full(params, dataset, method):
        ensemble(dataset, method, recipe, wanted, machine, Path.cwd(), cores)
    say_unwatched(recipe, f"ensemble@{dataset}-{method}")


if __name__ == "__main__":
    main(run, "dataset", "method")
