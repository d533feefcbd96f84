"""The members of the protocol, their training, and the checks of their data. Model k = 1 .. folds with seed
s is a cell of stages `train_fold` and `export_fold`:

    data/fold_models/<dataset>/<method>/<k>/<s>             of its training, as data/models
    data/fold_history/<dataset>/<method>/<k>/<s>.csv
    data/fold_logs/<dataset>/<method>/<k>/<s>.json
    data/fold_embeddings/<dataset>/<method>/<k>/<s>.arrow   of the test images, by the selected weights

    seed of its training  =  s folds + (k - 1)

so that every member has its own seed, and additional seeds leave the existing members unchanged. (The
released code of Generalized Sum Pooling does not define its seeds.)
"""

from dataclasses import dataclass, replace
from pathlib import Path

from unseen.config.layers import Layers, Patch
from unseen.config.place import Place
from unseen.data.class_split import split_classes
from unseen.data.sampler import make_sampler
from unseen.data.settings import Fold
from unseen.data.shards import Shards
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.training.job import Job, Outputs


@dataclass(frozen=True)
class Member:
    """One cell: model `model` (from 1) of `folds` with seed `seed`."""

    dataset: str
    method: str
    model: int
    folds: int
    seed: int

    @property
    def training_seed(self) -> int:
        return self.seed * self.folds + self.model - 1

    def file(self, kind: str, suffix: str = "") -> Path:
        """The output `kind` (models, history, logs, embeddings), relative to the root of the project."""
        cell = Path(self.dataset, self.method, str(self.model))
        return Path("data", f"fold_{kind}") / cell / f"{self.seed}{suffix}"


def fold(base: Layers, model: int, folds: int) -> Layers:
    """The layers of a member: it selects its iterate on its fold, whatever protocol the recipe has."""
    training = {"protocol": "selected", "fold": {"model": model, "folds": folds}}
    return base.plus(Patch(Place(f"Model {model} of {folds} folds"), {"training": training}))


def require_members(recipe: Recipe, dataset: str, method: str) -> None:
    """Raises UserError for a recipe whose trainings cannot be members: zero iterations, batches of tuples."""
    remedy = f"Remove {method} from run.ensembles"
    if recipe.training.iterations == 0:
        raise UserError(
            f"{method} on {dataset} trains for 0 iterations: all members would be the same network.",
            f"{remedy}, or set training.iterations of its recipe.",
        )
    if recipe.batch.sampling == "tuples":
        raise UserError(
            f"{method} on {dataset} trains on tuples. The data set defines the validation classes of tuples, "
            "so that folds are not possible.",
            f"{remedy}.",
        )


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
