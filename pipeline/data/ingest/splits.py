"""Chooses the classes that are not seen in training."""

import hashlib
import math
from collections.abc import Iterable
from typing import Literal


def held_out(classes: Iterable[str], share: float, order: Literal["random", "name"], seed: int) -> set[str]:
    """The test classes: round(share * C) of them, halves are rounded up.

    order "name": the last classes in name order. order "random": the classes with the smallest sha256 of seed
    and name. The choice then does not depend on the version of a random number generator, and an added or
    removed class changes the split of at most one other class.
    """
    names = sorted(set(classes))
    count = math.floor(share * len(names) + 0.5)
    if order == "random":
        names.sort(key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest(), reverse=True)
    return set(names[len(names) - count :])
