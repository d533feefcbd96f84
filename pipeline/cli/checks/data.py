"""The properties of samplers, transforms and readers."""

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from jaxtyping import UInt8

from unseen.cli.checks.common import CLASSES, require
from unseen.data.ingest.collection import Collection, require_usable
from unseen.data.ingest.ingest import collection_of
from unseen.data.ingest.prepare import prepare
from unseen.data.ingest.settings import OutsideSource
from unseen.data.sampler import make_sampler
from unseen.data.settings import Batch, Input
from unseen.data.transforms import OutsideTransform

_LABELS = np.repeat(np.arange(4 * CLASSES), 10)  # of the images that a sampler draws
_CROPS = 8
_READ = 20  # pictures that a reader reads
_PURE = "Let the result depend on the arguments alone: keep nothing between calls."


def batches(batch: Batch) -> None:
    """Each step has a batch of the images, whatever was drawn before."""
    first, second = (make_sampler(_LABELS, batch, seed=0) for _ in range(2))
    require(first.steps_per_epoch > 0, f"steps_per_epoch is {first.steps_per_epoch}.", "Make it 1 or more.")
    steps = range(2 * min(first.steps_per_epoch, 8))
    upwards = [first.draw(step) for step in steps]
    downwards = [second.draw(step) for step in reversed(steps)][::-1]
    differ = [step for step in steps if not all(map(np.array_equal, upwards[step], downwards[step]))]
    require(not differ, f"Two samplers draw different batches for the steps {differ}.", _PURE)


def keys(batch: Batch) -> None:
    """An image has another key in each step, and with each seed."""
    first, other = (make_sampler(_LABELS, batch, seed) for seed in (0, 1))
    drawn = np.concatenate([first.draw(0).keys, first.draw(first.steps_per_epoch).keys, other.draw(0).keys])
    what = f"{len(drawn) - len(np.unique(drawn)):,} of {len(drawn):,} keys of two steps and two seeds repeat."
    require(len(np.unique(drawn)) == len(drawn), what, "Take the keys from `drawn` of unseen.data.")


def images(input: Input) -> None:
    """An image keeps its shape and type, and its key alone decides the result, also in threads."""
    transform = OutsideTransform(input)
    crops = np.random.default_rng(0).integers(0, 256, (_CROPS, input.size, input.size, 3), np.uint8)

    def result(key: int) -> UInt8[np.ndarray, "S S 3"]:
        return transform(crops[key].copy(), key).copy()

    upwards, downwards = map(result, range(_CROPS)), map(result, reversed(range(_CROPS)))
    expected = np.stack(list(upwards))
    differ = not np.array_equal(expected, np.stack(list(downwards))[::-1])
    require(not differ, "Two calls with one image and one key differ.", _PURE)
    with ThreadPoolExecutor(4) as pool:
        differ = not np.array_equal(expected, np.stack(list(pool.map(result, range(_CROPS)))))
    require(not differ, "Calls of several threads at a time differ from calls one after the other.", _PURE)


def pictures(source: OutsideSource) -> None:
    """The pictures are usable, and they are the same in each listing."""
    with _collection(source) as first, _collection(source) as second:
        if first.by_class:
            require_usable(first.in_order(), first.location)
        require(first.in_order() == second.in_order(), "Two lists of pictures differ.", "Sort what is read.")
        sources = [picture.source for picture in first.pictures]
        what = f"{len(sources) - len(set(sources)):,} sources are not unique."
        require(len(set(sources)) == len(sources), what, "Give each picture a name of its own.")


def readings(source: OutsideSource) -> None:
    """A picture can be read in another process, and decoded."""
    with _collection(source) as collection:
        read = pickle.loads(pickle.dumps(collection.read))  # made in this process
        every = collection.in_order()
        for picture in every[:: max(1, len(every) // _READ)]:
            prepare(read(picture.source), resize=None, quality=95)


@contextmanager
def _collection(source: OutsideSource) -> Iterator[Collection]:
    with TemporaryDirectory() as scratch:
        yield collection_of(source, Path(scratch))
