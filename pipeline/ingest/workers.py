"""Pictures read and worked on by a pool of processes; what came of them is handed back in order, with a
bounded look-ahead."""

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

import cv2

from pipeline.ingest.collection import Content
from pipeline.runtime.cores import usable_cores
from pipeline.runtime.errors import UserError
from pipeline.runtime.stage import end_with_parent

CHUNK = 16  # pictures that a process takes at once
AHEAD = 3  # chunks per process that are read before they are asked for: memory does not grow with the set
FEW = 256  # below, a pool takes longer to start than the work itself

Result = TypeVar("Result")


class Damaged(NamedTuple):
    """A picture that could not be read, and why."""

    reason: str


@dataclass(frozen=True)
class Job(Generic[Result]):
    """What a process needs to know once; both functions are sent to it. A ValueError or OSError of either
    makes a picture a damaged one."""

    read: Callable[[str], Content]
    work: Callable[[Content], Result]


_job: Job[Any] | None = None


def outcomes(
    sources: list[str], job: Job[Result], processes: int | None = None
) -> Generator[Result | Damaged, None, None]:
    """One result per source, in the order of `sources`. `processes`: None takes the cores this process may
    use, 1 works without a pool."""
    if processes is None:
        processes = usable_cores() if len(sources) > FEW else 1
    if processes == 1:
        for source in sources:
            yield _one(job, source)
        return
    chunks = (sources[start : start + CHUNK] for start in range(0, len(sources), CHUNK))
    pool = ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_start, initargs=(job, os.getpid())
    )
    try:
        waiting: deque[Future[list[Result | Damaged]]] = deque(
            pool.submit(_many, chunk) for chunk in islice(chunks, AHEAD * processes)
        )
        while waiting:
            done = waiting.popleft().result()
            for chunk in islice(chunks, 1):
                waiting.append(pool.submit(_many, chunk))
            yield from done
    except BrokenProcessPool:
        raise UserError(
            "A process that reads images was ended from outside.",
            "Most often memory ran out: run again with more of it free.",
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _start(job: Job[Any], parent: int) -> None:
    global _job
    _job = job
    end_with_parent(parent)
    signal.signal(
        signal.SIGTERM, signal.SIG_DFL
    )  # an exception, as a stage raises there, would be taken for the failure of one chunk
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and ends the pool
    cv2.setNumThreads(1)


def _many(sources: list[str]) -> list[Any]:
    assert _job is not None
    return [_one(_job, source) for source in sources]


def _one(job: Job[Any], source: str) -> Any:
    try:
        return job.work(job.read(source))
    except (ValueError, OSError) as error:
        return Damaged(str(error))
