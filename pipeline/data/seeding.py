"""Independent random numbers for each use of a run's seed."""

import hashlib

import numpy as np


def seed_of(*parts: object) -> int:
    """A 63-bit seed: the first 8 bytes of the sha256 of the text of the parts.

    torch needs signed 64-bit seeds.
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def named_generator(seed: int, name: str) -> np.random.Generator:
    """The generator of one use, `name`, of the run's seed."""
    return np.random.default_rng(seed_of(seed, name))
