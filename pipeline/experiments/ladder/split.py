"""Test classes and folds of training classes, by groups of similar classes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unseen.runtime.errors import UserError

LEAST_CLASSES = 16  # below which nothing can be chosen: half are test classes, and a fold holds out two


class Split(NamedTuple):
    """Names of classes."""

    test: frozenset[str]
    folds: tuple[frozenset[str], ...]  # of the training classes; each fold once is held out


def split(
    classes: Sequence[str], share: float, folds: int, seed: int, group_of: Mapping[str, str] | None = None
) -> Split:
    """About `share` of the classes are test classes; the others are divided into folds of similar size.

    Groups are drawn in random order until the test classes are enough. `group_of`: the group of a class;
    None: each class is a group. Classes of a group are all test classes, or all in one fold, so that no
    training class resembles a test class. Raises UserError for a class without a group and for too few
    classes or groups.
    """
    names = sorted(set(classes))
    if len(names) < LEAST_CLASSES:
        raise UserError(
            f"The photos have {len(names)} classes; a comparison on unseen classes needs {LEAST_CLASSES}.",
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
