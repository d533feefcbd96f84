"""The training of a member, and the checks of its data."""

from dataclasses import replace

from unseen.data.class_split import split_classes
from unseen.data.sampler import make_sampler
from unseen.data.settings import Fold
from unseen.data.shards import Shards
from unseen.experiments.folds.members import Member
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.training.job import Job, Outputs


def member_job(base: Job, member: Member) -> Job:
    """The training of a member. `base` is the job of an ordinary training with the recipe of the member."""
    outputs = Outputs(
        model=base.root / member.file("models"),
        history=base.root / member.file("history", ".csv"),
        log=base.root / member.file("logs", ".json"),
    )
    return replace(
        base,
        method=f"{member.method}-fold-{member.model}",
        seed=member.training_seed,
        state=base.root / "data/state/folds",
        outputs=outputs,
    )


def require_fold_data(recipe: Recipe, dataset: str, folds: int, shards: Shards) -> None:
    """Raises UserError if a fold of the protocol cannot be trained or evaluated: too few classes or images,
    no test image."""
    if not len(shards.rows("test")):
        raise UserError(
            f"{dataset} has no test image: its ensembles cannot be evaluated.",
            "Use a data set with test classes.",
        )
    rows = shards.rows("train")
    labels, share = shards.labels[rows], recipe.training.validation_share
    for model in range(1, folds + 1):
        split = split_classes(rows, labels, share, 0, Fold(model=model, folds=folds))
        try:
            make_sampler(split.labels, recipe.batch, 0)
        except UserError as error:
            raise UserError(
                f"Model {model} of {folds} folds, {split.classes} training classes: {error.what}",
                "One fold of the train classes is held out. Lower batch.classes or batch.images_per_class of "
                "the recipe, or add folds to ensemble.folds.",
            ) from None
