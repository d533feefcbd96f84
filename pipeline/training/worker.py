"""One of the processes that share a training."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Worker:
    """Every worker runs the same loop on the same numbers. Rank 0 alone writes files and shows progress."""

    rank: int
    world: int  # workers of the training
    device: torch.device
    loader_threads: int = 1  # their number changes no batch
