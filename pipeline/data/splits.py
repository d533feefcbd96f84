"""Which classes are held out of training, and folds of the others. Published results depend on each draw.

    held_out            by a hash of the names, or the last ones     test classes of a folder
    permuted            by a permutation                             validation of a training
    validation_classes  contiguous blocks of the classes in order    members of the MLRC protocol
    grouped             groups of similar classes, by a permutation  heads on frozen networks

MLRC: the train classes 0 .. C-1 are divided at b_i = floor(i C / F), i = 0 .. F. Model k = 1 .. F is
validated on block F - k (0-based, so model 1 on the last) and trained on the others. (Musgrave et al., A
Metric Learning Reality Check, sec. 3; boundaries and order as in the released code of Generalized Sum
Pooling, datasets/dataset_base.py.)
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from unseen.data.seeding import named_generator
from unseen.runtime.errors import UserError

FOLDS = 4  # MLRC
LEAST_CLASSES = 16  # below which `grouped` cannot choose: half are test classes, and a fold holds out two


class Split(NamedTuple):
    """Names of classes."""

    test: frozenset[str]
    folds: tuple[frozenset[str], ...]  # of the training classes; each fold once is held out


def held_out(classes: Iterable[str], share: float, order: Literal["random", "name"], seed: int) -> set[str]:
    """round(share * C) of the classes, halves are rounded up.

    order "name": the last classes in name order. order "random": the classes with the smallest sha256 of seed
    and name. The choice then does not depend on the version of a random number generator, and an added or
    removed class changes the split of at most one other class.
    """
    names = sorted(set(classes))
    count = math.floor(share * len(names) + 0.5)
    if order == "random":
        names.sort(key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest(), reverse=True)
    return set(names[len(names) - count :])


def permuted(classes: Int[np.ndarray, " C"], share: float, seed: int) -> Int[np.ndarray, " h"]:
    """round(share * C) of the classes, halves are rounded to even, drawn by the run's seed."""
    return named_generator(seed, "validation").permutation(classes)[: round(share * len(classes))]


def fold_bounds(classes: int, folds: int = FOLDS) -> tuple[int, ...]:
    """b_0 .. b_F.

    Cars, 98 train classes: 0, 24, 49, 73, 98. Raises UserError for fewer classes than folds.
    """
    if not 2 <= folds <= classes:
        raise UserError(
            f"{classes} train classes cannot be divided into {folds} folds.",
            "Lower ensemble.folds, or add images of more classes.",
        )
    return tuple(i * classes // folds for i in range(folds + 1))


def validation_classes(model: int, classes: int, folds: int = FOLDS) -> range:
    """The block of classes that model 1 .. F is validated on. Raises UserError as `fold_bounds` does."""
    bounds = fold_bounds(classes, folds)
    return range(bounds[folds - model], bounds[folds - model + 1])


def grouped(
    classes: Sequence[str],
    share: float,
    folds: int,
    seed: int,
    group_of: Mapping[str, str] | None = None,
    source: str = "The photos",
) -> Split:
    """About `share` of the classes are test classes; the others are divided into folds of similar size.

    Groups are drawn in random order until the test classes are enough. `group_of`: the group of a class;
    None: each class is a group. Classes of a group are all test classes, or all in one fold, so that no
    training class resembles a test class. Raises UserError for a class without a group and for too few
    classes or groups. source: what has the classes, for this message.
    """
    names = sorted(set(classes))
    if len(names) < LEAST_CLASSES:
        raise UserError(
            f"{source} have {len(names)} classes; a comparison on unseen classes needs {LEAST_CLASSES}.",
            "Label more products, or search with `unseen index PHOTOS CATALOG` without training.",
        )
    groups: dict[str, list[str]] = {}
    for name in names:
        if group_of is not None and name not in group_of:
            raise UserError(f"The class {name} has no group.", "Add it to the CSV of --groups: label,group.")
        groups.setdefault(name if group_of is None else group_of[name], []).append(name)
    if len(groups) < folds + 1:
        raise UserError(
            f"The classes have {len(groups)} groups; {folds} folds and the test classes need {folds + 1}.",
            "Divide the groups, or omit --groups.",
        )
    order = np.random.default_rng(seed).permutation(sorted(groups)).tolist()
    test: list[str] = []
    while len(test) < share * len(names) and len(order) > folds:
        test += groups[order.pop(0)]
    parts: list[list[str]] = [[] for _ in range(folds)]
    for group in sorted(order, key=lambda key: (-len(groups[key]), key)):
        min(parts, key=len).extend(groups[group])
    return Split(frozenset(test), tuple(map(frozenset, parts)))
