"""Which classes are never seen in training."""

import hashlib
import math
from collections.abc import Iterable
from typing import Literal


def held_out(classes: Iterable[str], share: float, order: Literal["random", "name"], seed: int) -> set[str]:
    """The test classes: round(share * C) of them, halves up.

    order "name": the last ones in name order. order "random": those with the smallest sha256 of seed and
    name, so that the choice depends on no generator's version, and a class that joins or leaves moves at most
    one other.
    """
    names = sorted(set(classes))
    count = math.floor(share * len(names) + 0.5)
    if order == "random":
        names.sort(key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest(), reverse=True)
    return set(names[len(names) - count :])
