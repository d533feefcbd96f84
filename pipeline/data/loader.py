"""Shards -> batches of uint8 images, decoded and augmented by threads a few batches ahead.

Threads, not processes: decoding, resizing and channel order release the interpreter's lock, so nothing is pickled, copied or started anew, and every
image is written straight into its batch. Batches stay uint8 until the training step, a quarter of the bytes; `normalize` makes them float at once.
"""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Protocol, TypeVar, runtime_checkable

import cv2
import numpy as np
import torch
from jaxtyping import Float32, Int, Int64, UInt8
from torch import Tensor

from pipeline.config.parts import Input
from pipeline.data.decode import decode
from pipeline.data.sampler import PKSampler, ShuffledSampler
from pipeline.data.scratch import Scratch
from pipeline.data.shards import Shards
from pipeline.data.transforms import crop_for_testing, crop_for_training, cut_out
from pipeline.data.tuples import TupleSampler
from pipeline.runtime.errors import UserError

CACHED = 2**19  # values
AHEAD = 3  # batches in work while one is used: a slow image does not stop the step
Sampler = PKSampler | ShuffledSampler | TupleSampler
Item = TypeVar("Item")
_Part = Callable[[], None]
_Write = Callable[[int, Scratch], None]
_thread = threading.local()  # of a loader: ends with its threads


@runtime_checkable
class Pictures(Protocol):
    """Where encoded pictures come from: the shards of a data set, or files that belong to none."""

    def image(self, row: int) -> UInt8[np.ndarray, "size"]:
        """The encoded bytes of a row."""

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        """The part of it to look at; None: all of it."""

    def undecodable(self, row: int, reason: str) -> UserError:
        """What to say of a row whose bytes are no picture."""


@dataclass(frozen=True)
class TrainBatch:
    """A rank's slice of the global batch of one step."""

    step: int
    images: UInt8[Tensor, "b 3 S S"]
    labels: Int64[Tensor, "b"]
    samples: Int64[Tensor, "b"]  # places among the training images, into `rows` of the loader


class TrainLoader:
    """P x K batches of augmented images, a pure function of (sampler, step): neither threads nor workers nor restarts change them.

    `rows` are the row ids to train on and `labels` their labels, both aligned with the sampler's labels. Rank `rank` of `world` gets the contiguous
    slice [rank B / world, (rank + 1) B / world) of each global batch. Raises UserError when `world` does not divide B.
    """

    def __init__(
        self,
        shards: Shards,
        rows: Int[np.ndarray, "N"],
        labels: Int[np.ndarray, "N"],
        sampler: Sampler,
        input: Input,
        rank: int = 0,
        world: int = 1,
        threads: int = 1,
    ) -> None:
        size = sampler.batch.size
        if size % world:
            divisors = [n for n in range(1, size + 1) if size % n == 0]
            raise UserError(
                f"A global batch of {sampler.batch.classes} x {sampler.batch.images_per_class} = {size} images cannot be shared by {world} workers.",
                f"Set train.workers to one of {divisors}, or change batch.classes.",
            )
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world} workers")
        self.shards, self.rows, self.labels, self.sampler, self.input, self.threads = shards, rows, labels, sampler, input, threads
        self.slice = slice(rank * size // world, (rank + 1) * size // world)

    def iterate(self, start_step: int, stop_step: int) -> Generator[TrainBatch, None, None]:
        """The batches of steps start_step ... stop_step - 1, in order. Closing the iterator ends its threads.

        Raises UserError naming row and source of an image that cannot be decoded.
        """
        return _in_order((self._job(step) for step in range(start_step, stop_step)), self.threads)

    def _job(self, step: int) -> tuple[TrainBatch, list[_Part]]:
        draw = self.sampler.draw(step)
        positions, keys = draw.positions[self.slice], draw.keys[self.slice].tolist()
        rows = self.rows[positions].tolist()
        images = _fresh((len(rows), 3, self.input.size, self.input.size), np.uint8)
        planes = images.numpy()

        def write(index: int, scratch: Scratch) -> None:
            crop_for_training(_picture(self.shards, rows[index], scratch), keys[index], self.input, planes[index], scratch)

        labels = torch.from_numpy(self.labels[positions].astype(np.int64))
        return TrainBatch(step, images, labels, torch.from_numpy(positions)), _parts(write, len(rows), self.threads)


class EvalLoader:
    """Centre crops of the images of `rows`, in that order: (images, row ids) in batches of `batch_size`, the last one smaller.

    Of an image with a box, the box is all that is looked at: it is cut out first.
    """

    def __init__(self, pictures: Pictures, rows: Int[np.ndarray, "N"], input: Input, batch_size: int, threads: int = 1) -> None:
        self.pictures, self.rows, self.input, self.batch_size, self.threads = pictures, rows, input, batch_size, threads

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[UInt8[Tensor, "b 3 S S"], Int64[Tensor, "b"]]]:
        return _in_order((self._job(first) for first in range(0, len(self.rows), self.batch_size)), self.threads)

    def _job(self, first: int) -> tuple[tuple[Tensor, Tensor], list[_Part]]:
        rows = self.rows[first : first + self.batch_size].astype(np.int64)
        images = _fresh((len(rows), 3, self.input.size, self.input.size), np.uint8)
        planes = images.numpy()

        def write(index: int, scratch: Scratch) -> None:
            picture, box = _picture(self.pictures, int(rows[index]), scratch), self.pictures.box(int(rows[index]))
            crop_for_testing(picture if box is None else np.ascontiguousarray(cut_out(picture, box)), self.input, planes[index])

        return (images, torch.from_numpy(rows)), _parts(write, len(rows), self.threads)


def normalize(images: UInt8[Tensor, "B 3 H W"], mean: tuple[float, ...], std: tuple[float, ...]) -> Float32[Tensor, "B 3 H W"]:
    """(x / 255 - mean) / std per channel, on the device of `images`, as x * 1/(255 std) - mean/std: converted, multiplied and added to in place."""
    scale, shift = _affine(mean, std, images.device)
    if images.device.type != "cpu":
        return images.to(torch.float32).mul_(scale).add_(shift)
    result = _fresh(images.shape, np.float32)
    block = max(1, CACHED // max(1, images[:1].numel()))  # all three passes over what the cache holds
    for part, source in zip(result.split(block), images.split(block), strict=True):
        part.copy_(source).mul_(scale).add_(shift)
    return result


def _fresh(shape: tuple[int, ...], kind: type[np.generic]) -> Tensor:
    """Memory for a batch, asked of NumPy, which asks Linux for huge pages: touching those of torch.empty costs three times the normalisation."""
    return torch.from_numpy(np.empty(shape, kind))


@lru_cache
def _affine(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Kept on the device: sending them with each batch would make the host wait for the copy."""
    wide = torch.tensor(std, dtype=torch.float64)
    scale, shift = 1 / (255 * wide), -torch.tensor(mean, dtype=torch.float64) / wide
    return scale.to(device, torch.float32).view(1, 3, 1, 1), shift.to(device, torch.float32).view(1, 3, 1, 1)


def _picture(pictures: Pictures, row: int, scratch: Scratch) -> UInt8[np.ndarray, "H W 3"]:
    try:
        return decode(pictures.image(row), scratch)
    except ValueError as error:
        raise pictures.undecodable(row, str(error)) from error


def _parts(write: _Write, count: int, threads: int) -> list[_Part]:
    """Runs of neighbouring images, one per thread: a task takes 8 us, decoding and cropping a small image 100."""
    bounds = np.linspace(0, count, min(threads, count) + 1).astype(int).tolist()
    return [partial(_run, write, first, last) for first, last in pairwise(bounds)]


def _run(write: _Write, first: int, last: int) -> None:
    if not hasattr(_thread, "scratch"):
        _thread.scratch = Scratch()
    for index in range(first, last):
        write(index, _thread.scratch)


def _in_order(jobs: Iterable[tuple[Item, list[_Part]]], threads: int) -> Generator[Item, None, None]:
    """Yields each job's item when all its parts have run, in the order of the jobs, keeping `AHEAD` jobs in work.

    The first exception of a part is raised in its item's place. However the iterator ends, no thread outlives it.
    """
    cv2.setNumThreads(0)  # threads are ours: one image, one thread
    waiting: deque[tuple[Item, list[Future[None]]]] = deque()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="loader")
    try:
        for item, parts in jobs:
            waiting.append((item, [pool.submit(part) for part in parts]))
            if len(waiting) > AHEAD:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _finished(item: Item, futures: list[Future[None]]) -> Item:
    for future in futures:
        future.result()
    return item
