"""Embedding of pictures by several processes of this machine, each on its own GPU or with one compute thread:
same bytes for any number of processes.

The pictures are split into runs of whole batches, and every process computes with the same number of threads:
sums of floating-point numbers depend on both.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32

from unseen.frozen.embedder import Embedder
from unseen.frozen.encoded import BATCH, Precision
from unseen.runtime.cores import loader_threads_of, usable_cores
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress
from unseen.runtime.stage import end_with_parent
from unseen.training.export.model import compute_threads

THREADS = 1  # of a process that computes on the CPU
PICTURES = 128  # of a process at least, if the number of processes is not set: its start takes seconds
MOST = 8  # processes, if their number is not set: each has a copy of the model in memory
RUNS = 4  # per process and call at least, so that a slower process gets fewer
BATCHES = 4  # of a run at most: during the first one of a run, no batch is computed

Embed = Callable[[Sequence[Path], str], Float32[np.ndarray, "N D"]]

_embedder: Embedder | None = None
_loader_threads = 1


def processes_of(pictures: int, workers: int | None) -> int:
    """The number of processes that embed this number of pictures. None: one for each GPU, or without a GPU
    one for each core and PICTURES pictures, at most MOST."""
    batches = max(1, -(-pictures // BATCH))
    if workers is not None:
        return min(workers, batches)
    devices = torch.cuda.device_count() or min(usable_cores(), MOST)
    return max(1, min(devices, pictures // PICTURES))


@contextlib.contextmanager
def embedding(embedder: Embedder | Embed, processes: int) -> Iterator[Embed]:
    """Yields the embedding of pictures, in their order, by this number of processes; one is this process, in
    which torch has one thread, also for an engine that only resizes by torch.

    The model is loaded again from its directory by each further process. Raises the UserErrors of the
    processes, and UserError for a process that was killed.
    """
    if processes == 1:
        with compute_threads(THREADS):
            yield embedder
        return
    assert isinstance(embedder, Embedder)
    assert embedder.directory is not None, "processes load the model from its directory"
    context = get_context("spawn")
    devices: Queue[str] = context.Queue()
    for device in devices_of(processes):
        devices.put(device)
    arguments = embedder.directory, embedder.precision, devices, loader_threads_of(processes), os.getpid()
    pool = ProcessPoolExecutor(processes, mp_context=context, initializer=_initialize, initargs=arguments)

    def embed(pictures: Sequence[Path], label: str) -> Float32[np.ndarray, "N D"]:
        size = BATCH * max(1, min(BATCHES, len(pictures) // (BATCH * RUNS * processes)))
        runs = [pictures[start : start + size] for start in range(0, len(pictures), size)]
        vectors = []
        with Progress(label, len(pictures), "images") as progress:
            for run in pool.map(_embed, runs):
                vectors.append(run)
                progress.advance(len(run))
        return np.concatenate(vectors)

    try:
        yield embed
    except BrokenProcessPool:
        raise UserError(
            "A process that embeds pictures was killed.",
            "The most frequent reason is too little memory: set --workers to a smaller number.",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def devices_of(processes: int) -> list[str]:
    """The device of each process: the GPUs in turn, if there are any."""
    gpus = torch.cuda.device_count()
    return [f"cuda:{number % gpus}" if gpus else "cpu" for number in range(processes)]


def _initialize(
    directory: Path, precision: Precision, devices: "Queue[str]", loader_threads: int, parent: int
) -> None:
    global _embedder, _loader_threads
    end_with_parent(parent)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too and ends the pool
    torch.set_num_threads(THREADS)
    _embedder = Embedder(directory, precision, torch.device(devices.get()))
    _loader_threads = loader_threads


def _embed(pictures: Sequence[Path]) -> Float32[np.ndarray, "N D"]:
    assert _embedder is not None
    return _embedder(pictures, loader_threads=_loader_threads)
