"""Shards -> weights and history of one member of an MLRC ensemble: a method that holds out one fold of the
train classes."""

from pathlib import Path

from unseen.cluster.training import run_training
from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.inputs import TrainInputs, read_inputs
from unseen.config.resolve import settings
from unseen.config.stages import TrainSettings
from unseen.data.shards import Shards
from unseen.experiments.folds.members import Member, member_job, require_fold_data
from unseen.runtime.stage import main
from unseen.training.job import job_of, note_unwatched_checkpoint, possible_worlds


def run(dataset: str, method: str, fold: int, seed: int) -> None:
    """Trains a method on a data set without a fold of its classes, on the workers of block `train`.

    Resumes a killed run with the same settings.
    """
    params, inputs = Params(), read_inputs(TrainInputs, "train_fold", dataset, method, fold)
    recipe, machine = inputs.settings.recipe, settings(params, "train", TrainSettings)
    assert recipe.training.fold is not None
    member = Member(dataset, method, fold, recipe.training.fold.folds, seed)
    with field_origins(Definitions(params), dataset, method):
        possible_worlds(recipe, machine)
        job = job_of(dataset, method, seed, recipe, Path.cwd(), machine, inputs.code_digest)
        require_fold_data(recipe, dataset, member.folds, Shards(job.shards))
        run_training(member_job(job, member), machine)
    note_unwatched_checkpoint(recipe)


if __name__ == "__main__":
    main(run, "dataset", "method", "fold", "seed")
