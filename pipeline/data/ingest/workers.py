"""Reads and processes pictures in a pool of processes. Results are returned in order, with a bounded number
of pictures in advance."""

import os
import signal
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from typing import Any, Generic, NamedTuple, TypeVar

from unseen.data.ingest.collection import Content
from unseen.runtime.cores import usable_cores
from unseen.runtime.errors import UserError
from unseen.runtime.stage import end_with_parent

CHUNK = 16  # pictures per task of a process
# Chunks per process that are submitted in advance, so that memory does not grow with the set.
CHUNKS_AHEAD = 3
SERIAL_PICTURES = 256  # up to this number, a pool takes longer to start than the work itself

Result = TypeVar("Result")


class Damaged(NamedTuple):
    """The result for a picture that cannot be read, with the reason."""

    reason: str


@dataclass(frozen=True)
class Job(Generic[Result]):
    """The two functions that are sent to each process once: `read` a source, `work` on its content. If either
    raises ValueError or OSError, the result is Damaged."""

    read: Callable[[str], Content]
    work: Callable[[Content], Result]


_job: Job[Any] | None = None


def outcomes(
    sources: list[str], job: Job[Result], processes: int | None = None
) -> Generator[Result | Damaged, None, None]:
    """One result per source, in the order of `sources`. `processes`: None uses all cores that this process
    may use, 1 works without a pool."""
    if processes is None:
        processes = usable_cores() if len(sources) > SERIAL_PICTURES else 1
    if processes == 1:
        for source in sources:
            yield _process(job, source)
        return
    chunks = (sources[start : start + CHUNK] for start in range(0, len(sources), CHUNK))
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_initialize, initargs=(job, os.getpid())
    )
    try:
        submitted: deque[Future[list[Result | Damaged]]] = deque(
            pool.submit(_process_chunk, chunk) for chunk in islice(chunks, CHUNKS_AHEAD * processes)
        )
        while submitted:
            results = submitted.popleft().result()
            for chunk in islice(chunks, 1):
                submitted.append(pool.submit(_process_chunk, chunk))
            yield from results
    except BrokenProcessPool:
        raise UserError(
            "A process that reads images was killed.",
            "The most frequent reason is too little memory: run again with more free memory.",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize(job: Job[Any], parent: int) -> None:
    global _job
    _job = job
    end_with_parent(parent)
    # The handler of a stage raises an exception, which the pool would report as the failure of one chunk.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives it too and ends the pool
    import cv2

    cv2.setNumThreads(1)


def _process_chunk(sources: list[str]) -> list[Any]:
    assert _job is not None
    return [_process(_job, source) for source in sources]


def _process(job: Job[Any], source: str) -> Any:
    try:
        return job.work(job.read(source))
    except OSError as error:  # its text contains the path of the file on this machine
        return Damaged(error.strerror or str(error))
    except ValueError as error:
        return Damaged(str(error))
