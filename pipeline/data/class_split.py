"""The rows of split `train` that are trained on, and those that are held out for validation.

Held out are a share or a fold of the train classes, or the images that the data set itself holds out
(classes, except in the token corpus, which is about unseen samples of seen classes). Protocol `published` and
the second phase of `refit` hold out nothing else. Test classes are not used in training.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from unseen.data.seeding import named_generator
from unseen.data.settings import Fold
from unseen.data.shards import Shards
from unseen.data.splits import permuted, validation_classes
from unseen.runtime.errors import UserError

VALIDATION = "validation"  # group of train images that a data set holds out itself
VALIDATED = 5_000  # held-out classes of a validation


@dataclass(frozen=True)
class ClassSplit:
    """Rows of split `train`, divided by class.

    Training labels are 0 .. classes - 1 in the order of the labels.
    """

    rows: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    classes: int
    validation_rows: Int[np.ndarray, " v"]
    validation_labels: Int[np.ndarray, " v"]


def hold_out(
    shards: Shards, share: float, seed: int, fold: Fold | None = None, of_group: bool = False
) -> ClassSplit:
    """The validation images of the data set if it has any, else a fold or a share of the classes.

    All of them are held out. Validated are at most VALIDATED classes, drawn by the run's seed: no published
    set has more, and a validation costs the square of its images. `of_group`: the data set must have
    validation images, as training on tuples requires. Otherwise a fold replaces them.
    """
    rows = shards.rows("train")
    labels, for_validation = shards.labels[rows], shards.in_group(VALIDATION)[rows]
    if of_group or (fold is None and for_validation.any()):
        return _sampled(split_group(rows, labels, for_validation), seed)
    return _sampled(split_classes(rows, labels, share, seed, fold), seed)


def _sampled(split: ClassSplit, seed: int) -> ClassSplit:
    """The split with at most VALIDATED validation classes of two images or more."""
    classes, counts = np.unique(split.validation_labels, return_counts=True)
    if len(classes) <= VALIDATED:
        return split
    usable = classes[counts >= 2]
    drawn = named_generator(seed, "validated classes").permutation(usable)[:VALIDATED]
    validated = np.isin(split.validation_labels, drawn)
    return replace(
        split,
        validation_rows=split.validation_rows[validated],
        validation_labels=split.validation_labels[validated],
    )


def without_validation(shards: Shards) -> ClassSplit:
    """All train images to train on, except those that the data set itself holds out; no validation images.

    Raises UserError for fewer than two classes.
    """
    rows = shards.rows("train")
    rows = rows[~shards.in_group(VALIDATION)[rows]]
    return all_classes(rows, shards.labels[rows])


def all_classes(rows: Int[np.ndarray, " n"], labels: Int[np.ndarray, " n"]) -> ClassSplit:
    """All of `rows` (`labels`: one per row) to train on. Raises UserError for fewer than two classes."""
    split = _divided(rows, labels, np.zeros(len(rows), bool))
    if split.classes < 2:
        raise UserError(
            f"The data set has {split.classes} train classes; training needs 2 or more.",
            "Add images of more classes.",
        )
    return split


def require_trainable_validation(shards: Shards) -> None:
    """Raises UserError if the data set itself holds out images, on which protocol `refit` cannot train."""
    if shards.in_group(VALIDATION)[shards.rows("train")].any():
        raise UserError(
            f"training.protocol is refit, but {shards.directory} itself holds out images for validation, "
            "which are never trained on: both phases would train on the same images.",
            "Set training.protocol to selected or published.",
        )


def split_classes(
    rows: Int[np.ndarray, " N"],
    labels: Int[np.ndarray, " N"],
    share: float,
    seed: int,
    fold: Fold | None = None,
) -> ClassSplit:
    """Holds out round(share * C) of the C classes among `labels` (one per row), drawn by the run's seed.

    With `fold`, holds out the block of that model in label order instead; share and seed have no effect.
    Raises UserError unless two classes remain to train on, and two held-out classes have two images each.
    """
    classes = np.unique(labels)
    if fold is None:
        held_out = permuted(classes, share, seed)
        name = f"training.validation_share = {share:g} of {len(classes)} train classes"
        setting = "training.validation_share"
    else:
        held_out = classes[validation_classes(fold.model, len(classes), fold.folds)]
        name = f"Model {fold.model} of {fold.folds} folds of {len(classes)} train classes"
        setting = "ensemble.folds"
    for_validation = np.isin(labels, held_out)
    trained_classes = len(classes) - len(held_out)
    usable = int((np.unique(labels[for_validation], return_counts=True)[1] >= 2).sum())
    if trained_classes < 2 or usable < 2:
        raise UserError(
            f"{name} leaves {trained_classes} to train on and holds out {len(held_out)}, "
            f"of which {usable} have two images or more; both sides need 2 or more.",
            f"Change {setting}, or add classes or images to the data set.",
        )
    return _divided(rows, labels, for_validation)


def split_group(
    rows: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], for_validation: Bool[np.ndarray, " N"]
) -> ClassSplit:
    """Holds out the images of group `validation`, which are marked.

    Raises UserError if the data set has no such group.

    Validation is retrieval among them, as for every data set. On SfM-120k a neighbour is relevant if it has
    the same 3D model, even if it shows another side of it. Deviation: the released code of that set selects
    by the loss on tuples mined among the same models.
    """
    if not for_validation.any() or for_validation.all():
        count = f"{int(for_validation.sum()):,} of {len(rows):,}"
        raise UserError(
            f"Training on tuples holds out the train images of group `{VALIDATION}`, which contains {count}.",
            "Use the data set `landmarks`, which has such a group, or another sampling and loss.",
        )
    return _divided(rows, labels, for_validation)


def _divided(
    rows: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], for_validation: Bool[np.ndarray, " N"]
) -> ClassSplit:
    classes = np.unique(labels[~for_validation])
    return ClassSplit(
        rows=rows[~for_validation],
        labels=np.searchsorted(classes, labels[~for_validation]),
        classes=len(classes),
        validation_rows=rows[for_validation],
        validation_labels=labels[for_validation],
    )
