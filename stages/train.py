"""Shards -> weights and history of one method on one data set with one seed."""

from pathlib import Path

from unseen.cluster.training import run_training
from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.inputs import TrainInputs, read_inputs
from unseen.config.resolve import settings
from unseen.config.stages import TrainSettings
from unseen.runtime.stage import main
from unseen.training.job import job_of, note_unwatched_checkpoint, possible_worlds


def run(dataset: str, method: str, seed: int) -> None:
    """Trains a method on a data set with a seed, on the workers of block `train`.

    Resumes a killed run with the same settings.
    """
    params, inputs = Params(), read_inputs(TrainInputs, "train", dataset, method)
    recipe, machine = inputs.settings.recipe, settings(params, "train", TrainSettings)
    with field_origins(Definitions(params), dataset, method):
        possible_worlds(recipe, machine)
        job = job_of(dataset, method, seed, recipe, Path.cwd(), machine, inputs.code_digest)
        run_training(job, machine)
    note_unwatched_checkpoint(recipe)


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
