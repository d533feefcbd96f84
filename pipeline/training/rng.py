"""Random numbers of a step: a function of (seed, step, rank), so a checkpoint stores no generator."""

import torch

from unseen.data.seeding import seed_of


def seed_step(seed: int, step: int, rank: int | None) -> None:
    """Seeds torch on all devices from (seed, step, rank).

    `rank` None is for what every worker must draw alike: the objective on the global batch. Masks that a
    network draws on its slice (dropout, stochastic depth) differ between ranks, and therefore depend on the
    number of workers.
    """
    value = seed_of(seed, "step", step, "all" if rank is None else rank)
    # torch.manual_seed would store one call, with its stack, for each kind of device that is absent.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)
