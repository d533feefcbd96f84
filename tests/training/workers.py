"""Starts W processes that share a gloo group, for tests of several workers."""

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

# Processes are forked from one that has imported the libraries and has run no test code, so that a session
# imports them once.
multiprocessing.set_forkserver_preload(["unseen.training.loop"])


def run_workers(function: Callable[..., Any], world: int, *arguments: Any) -> list[Any]:
    """Calls `function(rank, world, *arguments)` in `world` new processes and returns their results. An error
    in one process is raised here."""
    with tempfile.TemporaryDirectory() as directory:
        mp.start_processes(
            _work, (function, world, directory, arguments), nprocs=world, start_method="forkserver"
        )
        return [torch.load(Path(directory) / f"{rank}.pt", weights_only=False) for rank in range(world)]


def _work(
    rank: int, function: Callable[..., Any], world: int, directory: str, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    try:
        torch.save(function(rank, world, *arguments), Path(directory) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
