"""Shards -> weights and history of one method on one data set with one seed."""

from pathlib import Path

from pipeline.cluster.training import run_training
from pipeline.config import Params, TrainSettings, settings
from pipeline.config.command import field_origins
from pipeline.config.inputs import TrainInputs, read_inputs
from pipeline.runtime.stage import main
from pipeline.training.job import job_of, note_unwatched_checkpoint, possible_worlds


def run(dataset: str, method: str, seed: int) -> None:
    """Trains a method on a data set with a seed, on the workers of block `train`.

    Resumes a killed run with the same settings.
    """
    params, inputs = Params(), read_inputs(TrainInputs, "train", dataset, method)
    recipe, machine = inputs.settings.recipe, settings(params, "train", TrainSettings)
    with field_origins(params, dataset, method):
        possible_worlds(recipe, machine)
        job = job_of(dataset, method, seed, recipe, Path.cwd(), machine, inputs.code_digest)
        run_training(job, machine)
    note_unwatched_checkpoint(recipe, f"train@{dataset}-{method}-{seed}")


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
