"""Which images make up a batch, a pure function of (seed, step). Usually P x K: P classes of K images each.

The scheme of the multi-similarity code, which CBML and later work took over: in each epoch the images of a class are shuffled and chopped into chunks
of K, and a batch takes one chunk from each of P classes. Two things are made exact here. The number of batches of an epoch is fixed, T below, where
the original stops at the first batch that it cannot fill. And classes with more chunks left are likelier, by just as much as is needed to place all.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int64, UInt64

from pipeline.config.parts import Batch
from pipeline.runtime.errors import UserError


class Draw(NamedTuple):
    """One global batch, class-major: K images of the first class, K of the second, ..."""

    positions: Int64[np.ndarray, "B"]  # into the labels that the sampler was given
    keys: UInt64[np.ndarray, "B"]  # augmentation seed of each


class _Epoch(NamedTuple):
    number: int
    positions: Int64[np.ndarray, "T B"]
    keys: UInt64[np.ndarray, "T B"]


def make_sampler(labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> "PKSampler | ShuffledSampler":
    """The sampler that `batch.sampling` names. Raises UserError as it does."""
    return ShuffledSampler(labels, batch, seed) if batch.sampling == "shuffled" else PKSampler(labels, batch, seed)


class ShuffledSampler:
    """Every image once an epoch, in random order, whatever its class; what is left behind the last full batch is left out (Proxy-Anchor code).

    Raises UserError where the images do not fill one batch.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.batch, self.seed, self.images, self.excluded_classes = batch, seed, len(labels), 0
        self.steps_per_epoch = len(labels) // batch.size
        if self.steps_per_epoch == 0:
            raise UserError(
                f"A batch takes {batch.size} images, and there are {len(labels)} to train on.",
                "Lower batch.classes or batch.images_per_class, whose product is the size of a shuffled batch.",
            )

    def draw(self, step: int) -> Draw:
        """The global batch of `step` = 0, 1, 2, ...: O(N)."""
        if step < 0:
            raise ValueError(f"steps count from 0, got {step}")
        epoch, within = divmod(step, self.steps_per_epoch)
        order = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch]))).permutation(self.images)
        positions = order[within * self.batch.size : (within + 1) * self.batch.size].astype(np.int64)
        return Draw(positions, augmentation_keys(self.seed, epoch, positions, np.zeros_like(positions)))


class PKSampler:
    """Draws batches of `batch.classes` distinct classes with `batch.images_per_class` images each.

    With n_c images in class c, it has m_c = max(1, floor(n_c / K)) chunks an epoch. The epoch has `steps_per_epoch` batches,

        T = max { t : sum_c min(m_c, t) >= P t },

    the largest number of batches of P distinct classes that these chunks can fill. Chunks beyond the P T that are needed are left out by
    chance, and so are the n_c mod K images behind the last full chunk; both change from epoch to epoch, so that all images are used over time.

    A class with fewer than K images shows all of them and fills the rest of its chunk with repetitions. One with a single image has no positive pair
    and is never drawn, unless K = 1 (proxy losses): `excluded_classes` counts these. Raises UserError when fewer than P classes remain.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.batch, self.seed = batch, seed
        classes, members, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        least = min(2, batch.images_per_class)
        self.excluded_classes = int((sizes < least).sum())
        if len(classes) - self.excluded_classes < batch.classes:
            left_out = f" ({self.excluded_classes} more have one image only)" if self.excluded_classes else ""
            left = len(classes) - self.excluded_classes
            raise UserError(
                f"A batch needs {batch.classes} classes, and only {left} can be trained on{left_out}.",
                f"Set batch.classes={left} or lower, or bring images of more classes: test classes and validation classes are not trained on.",
            )
        usable = np.flatnonzero(sizes[members] >= least)
        # Sorted by class: the images of class c are usable[start[c] : start[c] + sizes[c]].
        self._images = usable[np.argsort(members[usable], kind="stable")]
        self._sizes = sizes[sizes >= least]
        self._chunks = np.maximum(1, self._sizes // batch.images_per_class)
        self.steps_per_epoch = _most_batches(self._chunks, batch.classes)
        self._epoch: _Epoch | None = None

    def draw(self, step: int) -> Draw:
        """The global batch of `step` = 0, 1, 2, ...: O(N) for the first of an epoch, which is kept, O(B) for those that follow."""
        if step < 0:
            raise ValueError(f"steps count from 0, got {step}")
        number, within = divmod(step, self.steps_per_epoch)
        epoch = self._epoch
        if epoch is None or epoch.number != number:
            epoch = self._epoch = self._plan(number)
        return Draw(epoch.positions[within], epoch.keys[within])

    def _plan(self, number: int) -> _Epoch:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, number])))
        wanted, steps, images_per_class = self.batch.classes, self.steps_per_epoch, self.batch.images_per_class
        shuffled, start = self._shuffled(generator)

        available = np.minimum(self._chunks, steps)
        remaining = generator.multivariate_hypergeometric(available, wanted * steps, method="marginals")
        used = np.zeros_like(remaining)
        positions = np.empty((steps, wanted, images_per_class), np.int64)
        for step in range(steps):
            chosen = _choose(generator, remaining, wanted, steps - step)
            first = start[chosen] + used[chosen] * images_per_class
            positions[step] = shuffled[first[:, None] + np.arange(images_per_class)]
            remaining[chosen] -= 1
            used[chosen] += 1
        flat = positions.reshape(-1)
        keys = augmentation_keys(self.seed, number, flat, _occurrences(flat))
        return _Epoch(number, positions.reshape(steps, -1), keys.reshape(steps, -1))

    def _shuffled(self, generator: np.random.Generator) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "C"]]:
        """The images of all classes, shuffled within each, and where each class begins. A class of fewer than K is followed by repetitions."""
        sizes, images_per_class = self._sizes, self.batch.images_per_class
        classes = np.repeat(np.arange(len(sizes)), sizes)
        first = np.cumsum(sizes) - sizes
        missing = np.maximum(0, images_per_class - sizes)
        order = np.lexsort((generator.random(len(classes)), classes))
        small = np.repeat(np.arange(len(sizes)), missing)
        repeated = first[small] + generator.integers(0, sizes[small])
        everything = np.concatenate([self._images[order], self._images[repeated]])
        padded = np.argsort(np.concatenate([classes, small]), kind="stable")  # stable: repetitions come after the images
        lengths = sizes + missing
        return everything[padded], np.cumsum(lengths) - lengths


def _most_batches(chunks: Int64[np.ndarray, "C"], classes: int) -> int:
    """max { t : sum_c min(chunks_c, t) >= classes t }. The mean of min(chunks_c, t) / t falls with t, so bisection finds it."""
    low, high = 1, int(chunks.sum()) // classes
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(chunks, middle).sum() >= classes * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _choose(generator: np.random.Generator, remaining: Int64[np.ndarray, "C"], classes: int, steps: int) -> Int64[np.ndarray, "P"]:
    """P distinct classes, c with probability remaining_c / steps, by systematic sampling in random order.

    Given sum_c remaining_c = P steps and remaining_c <= steps, both hold again afterwards for steps - 1: a class that must be in every batch that is
    left has probability one. The classes lie end to end as intervals of length remaining_c; points `steps` apart hit each interval at most once.
    """
    order = generator.permutation(np.flatnonzero(remaining))
    points = generator.integers(steps) + steps * np.arange(classes)
    return order[np.searchsorted(np.cumsum(remaining[order]), points, side="right")]


def _occurrences(positions: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """How often each entry stood earlier in the same array: 0 for the first time."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.concatenate([begins, [len(ordered)]]))
    occurrences = np.empty_like(positions)
    occurrences[order] = np.arange(len(ordered)) - np.repeat(begins, counts)
    return occurrences


def augmentation_keys(seed: int, epoch: int, positions: Int64[np.ndarray, "n"], occurrences: Int64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    """A 64-bit hash of (seed, epoch, position, occurrence): the four are absorbed one after the other by SplitMix64's mixing function."""
    state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return _mix(_mix(state + positions.astype(np.uint64)) + occurrences.astype(np.uint64))


def _mix(value: UInt64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
