"""One of the processes that share a training."""

from collections.abc import Callable
from dataclasses import dataclass

import torch


def stays() -> bool:
    """That the machine is not to be lost, where nobody gives notice."""
    return False


@dataclass(frozen=True)
class Worker:
    """Every worker runs the same loop on the same numbers. Rank 0 alone writes files and shows progress."""

    rank: int
    world: int  # workers of the training
    device: torch.device
    loader_threads: int = 1  # their number changes no batch
    preempted: Callable[[], bool] = stays  # whether a machine of the training is to be lost
