"""Shards -> batches of uint8 images, decoded and augmented by threads a few batches ahead.

Threads are enough, because decoding, resizing and splitting of channels release the lock of the interpreter.
Unlike processes they need no pickling, copying or start-up, and each image is written directly into its
batch. Batches are uint8 until the training step, a quarter of the bytes of float32; `normalize` converts
them.
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

from unseen.data.decode import decode
from unseen.data.sampler import OutsideSampler, PKSampler, ShuffledSampler
from unseen.data.scratch import Scratch
from unseen.data.settings import Input
from unseen.data.shards import Shards
from unseen.data.transforms import OutsideTransform, crop_for_testing, crop_for_training, cut_out
from unseen.data.tuples import TupleSampler
from unseen.runtime.errors import UserError

CACHED = 2**19  # values that fit the cache
AHEAD = 3  # batches that are prepared while one is used, so that a slow image does not delay the step
Sampler = PKSampler | ShuffledSampler | OutsideSampler | TupleSampler
Item = TypeVar("Item")
_Part = Callable[[], None]
_Write = Callable[[int, Scratch], None]
_thread = threading.local()  # scratch memory, freed with the threads of a loader


@runtime_checkable
class Pictures(Protocol):
    """A source of encoded pictures: the shards of a data set, or other files."""

    def image(self, row: int) -> UInt8[np.ndarray, "size"]:
        """The encoded bytes of a row."""

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        """The part of the picture to use; None: all of it."""

    def undecodable(self, row: int, reason: str) -> UserError:
        """The error for a row whose bytes are not a picture."""


@dataclass(frozen=True)
class TrainBatch:
    """The slice of one rank of the global batch of one step."""

    step: int
    images: UInt8[Tensor, "b 3 S S"]  # channels last
    labels: Int64[Tensor, "b"]
    samples: Int64[Tensor, "b"]  # positions in `rows` of the loader


class TrainLoader:
    """P x K batches of augmented images, a pure function of (sampler, step).

    Threads, workers and restarts do not change them. `rows` are the row ids to train on and `labels` their
    labels, both in the order of the labels of the sampler. Rank `rank` of `world` gets the slice [rank B /
    world, (rank + 1) B / world) of each global batch. `pinned`: images are written into memory from which a
    GPU copies. `world` divides B (training/job.py, check_world).
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
        pinned: bool = False,
    ) -> None:
        size = sampler.batch.size
        if not 0 <= rank < world:
            raise ValueError(f"rank {rank} of {world} workers")
        self.shards, self.rows, self.labels = shards, rows, labels
        self.sampler, self.input, self.threads, self.pinned = sampler, input, threads, pinned
        self._transform = None if input.module is None else OutsideTransform(input)
        self.slice = slice(rank * size // world, (rank + 1) * size // world)

    def iterate(self, start_step: int, stop_step: int) -> Generator[TrainBatch, None, None]:
        """The batches of steps start_step ... stop_step - 1, in order. Closing the iterator ends its threads.

        Raises UserError with row and source of an image that cannot be decoded.
        """
        return _in_order((self._job(step) for step in range(start_step, stop_step)), self.threads)

    def _job(self, step: int) -> tuple[TrainBatch, list[_Part]]:
        draw = self.sampler.draw(step)
        positions, keys = draw.positions[self.slice], draw.keys[self.slice].tolist()
        rows = self.rows[positions].tolist()
        shape = (len(rows), self.input.size, self.input.size, 3)
        images = _fresh(shape, np.uint8, self.pinned).permute(0, 3, 1, 2)
        planes = images.numpy()

        def write(index: int, scratch: Scratch) -> None:
            picture = _picture(self.shards, rows[index], scratch)
            crop_for_training(picture, keys[index], self.input, planes[index], scratch)
            if self._transform is not None:
                crop = planes[index].transpose(1, 2, 0)
                crop[...] = self._transform(crop, keys[index])

        labels = torch.from_numpy(self.labels[positions].astype(np.int64))
        batch = TrainBatch(step, images, labels, torch.from_numpy(positions))
        return batch, _parts(write, len(rows), self.threads)


class EvalLoader:
    """Centre crops of the images of `rows` in their order: (images, row ids) in batches of `batch_size`.

    The last batch may be smaller. An image with a box is first cropped to the box. `pinned`: as in
    TrainLoader.
    """

    def __init__(
        self,
        pictures: Pictures,
        rows: Int[np.ndarray, "N"],
        input: Input,
        batch_size: int,
        threads: int = 1,
        pinned: bool = False,
    ) -> None:
        self.pictures, self.rows, self.input = pictures, rows, input
        self.batch_size, self.threads, self.pinned = batch_size, threads, pinned

    def __len__(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[UInt8[Tensor, "b 3 S S"], Int64[Tensor, "b"]]]:
        return _in_order(
            (self._job(first) for first in range(0, len(self.rows), self.batch_size)), self.threads
        )

    def _job(self, first: int) -> tuple[tuple[Tensor, Tensor], list[_Part]]:
        rows = self.rows[first : first + self.batch_size].astype(np.int64)
        images = _fresh((len(rows), 3, self.input.size, self.input.size), np.uint8, self.pinned)
        planes = images.numpy()

        def write(index: int, scratch: Scratch) -> None:
            row = int(rows[index])
            picture, box = _picture(self.pictures, row, scratch), self.pictures.box(row)
            if box is not None:
                picture = np.ascontiguousarray(cut_out(picture, box))
            crop_for_testing(picture, self.input, planes[index])

        return (images, torch.from_numpy(rows)), _parts(write, len(rows), self.threads)


def normalize(
    images: UInt8[Tensor, "B 3 H W"], mean: tuple[float, ...], std: tuple[float, ...]
) -> Float32[Tensor, "B 3 H W"]:
    """(x / 255 - mean) / std per channel on the device of `images`, in their memory format.

    It is computed in place as x * 1/(255 std) - mean/std.
    """
    scale, shift = _affine(mean, std, images.device)
    if images.device.type != "cpu":
        return images.to(torch.float32).mul_(scale).add_(shift)
    if images.is_contiguous():
        return _transformed(images, scale, shift)
    # Rows of interleaved pixels: with the channels as the last axis torch would compute three values at once.
    batch, channels, height, width = images.shape
    rows = images.permute(0, 2, 3, 1).reshape(batch * height, width * channels)
    result = _transformed(rows, scale.flatten().repeat(width), shift.flatten().repeat(width))
    return result.view(batch, height, width, channels).permute(0, 3, 1, 2)


def _transformed(
    values: UInt8[Tensor, "n *rest"], scale: Float32[Tensor, "..."], shift: Float32[Tensor, "..."]
) -> Float32[Tensor, "n *rest"]:
    """scale x + shift, broadcast over the last axes."""
    result = _fresh(values.shape, np.float32)
    block = max(1, CACHED // max(1, values[:1].numel()))  # all three passes within the cache
    for part, source in zip(result.split(block), values.split(block), strict=True):
        part.copy_(source).mul_(scale).add_(shift)
    return result


def _fresh(shape: tuple[int, ...], kind: type[np.generic], pinned: bool = False) -> Tensor:
    """Memory for a batch from NumPy, which requests huge pages from Linux: the first access to the pages of
    torch.empty takes longer than the normalisation. Pinned memory comes from torch, which uses it again."""
    if pinned:
        return torch.empty(shape, dtype=torch.from_numpy(np.empty(0, kind)).dtype, pin_memory=True)
    return torch.from_numpy(np.empty(shape, kind))


@lru_cache
def _affine(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Scale and shift, cached on the device, so that the host does not wait for a copy at each batch."""
    wide = torch.tensor(std, dtype=torch.float64)
    scale, shift = 1 / (255 * wide), -torch.tensor(mean, dtype=torch.float64) / wide
    return scale.to(device, torch.float32).view(1, 3, 1, 1), shift.to(device, torch.float32).view(1, 3, 1, 1)


def _picture(pictures: Pictures, row: int, scratch: Scratch) -> UInt8[np.ndarray, "H W 3"]:
    try:
        return decode(pictures.image(row), scratch)
    except ValueError as error:
        raise pictures.undecodable(row, str(error)) from error


def _parts(write: _Write, count: int, threads: int) -> list[_Part]:
    """One run of neighbouring images per thread.

    One task per image would cost too much for small images.
    """
    bounds = np.linspace(0, count, min(threads, count) + 1).astype(int).tolist()
    return [partial(_run, write, first, last) for first, last in pairwise(bounds)]


def _run(write: _Write, first: int, last: int) -> None:
    if not hasattr(_thread, "scratch"):
        _thread.scratch = Scratch()
    for index in range(first, last):
        write(index, _thread.scratch)


def _in_order(jobs: Iterable[tuple[Item, list[_Part]]], threads: int) -> Generator[Item, None, None]:
    """Yields the item of each job after all its parts have run, in the order of the jobs.

    `AHEAD` jobs are in progress.

    The first exception of a part is raised in place of its item. All threads end with the iterator.
    """
    cv2.setNumThreads(0)  # each image is processed by one thread of this loader
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
