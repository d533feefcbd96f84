"""Random numbers of a step: seeded from what the step is, so that nothing has to be stored to resume."""

import hashlib

import numpy as np
import torch


def seed_step(seed: int, step: int, rank: int | None) -> None:
    """Seeds torch on all devices from (seed, step, rank).

    `rank` None is for what every worker must draw alike: the objective on the global batch. Masks that a network draws on its slice (dropout,
    stochastic depth) differ between ranks, and therefore depend on the number of workers.
    """
    torch.manual_seed(_number(seed, "step", step, "all" if rank is None else rank))


def named_generator(seed: int, name: str) -> np.random.Generator:
    """A generator of its own for one use of the run's seed."""
    return np.random.default_rng(_number(seed, name))


def _number(*parts: object) -> int:
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch takes a signed 64-bit seed
