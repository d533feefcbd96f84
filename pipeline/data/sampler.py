"""The images of a batch, as a pure function of (seed, step). Usually P x K: P classes of K images each.

A plan is made once per epoch, so that a step costs O(B log N) for any number of images and classes.

The scheme is that of the multi-similarity code, as in CBML and later work: in each epoch the images of a
class are shuffled and divided into chunks of K, and a batch consists of one chunk of each of P classes.
Deviations: the number of batches of an epoch is fixed (T below), while the original ends at the first batch
that it cannot fill; and a class is drawn with a probability proportional to its remaining chunks, so that all
chunks are used.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int64, UInt64

from unseen.data.settings import Batch
from unseen.data.trades import trade
from unseen.runtime.errors import UserError
from unseen.runtime.parts import made

# Steps x classes of an epoch up to which its batches are drawn one after the other, at 13 ns each.
SYSTEMATIC = 1 << 27


class Draw(NamedTuple):
    """One global batch, class-major: K images of the first class, K of the second, ..."""

    positions: Int64[np.ndarray, "B"]  # in the labels of the sampler
    keys: UInt64[np.ndarray, "B"]  # augmentation seed of each


def drawn(positions: Int[np.ndarray, "B"], seed: int, step: int) -> Draw:
    """The draw of a step, with keys that differ between steps and between occurrences of an image."""
    wide = positions.astype(np.int64)
    return Draw(wide, augmentation_keys(seed, step, wide, _occurrences(wide)))


class _Epoch(NamedTuple):
    number: int
    positions: Int64[np.ndarray, "T B"]
    keys: UInt64[np.ndarray, "T B"]


def make_sampler(
    labels: Int[np.ndarray, "N"], batch: Batch, seed: int
) -> "PKSampler | ShuffledSampler | OutsideSampler":
    """The sampler of `batch`: its `module`, or that with the name `sampling`. Raises UserError as the sampler
    does."""
    if batch.module is not None:
        return OutsideSampler(labels, batch, seed)
    sampler = ShuffledSampler if batch.sampling == "shuffled" else PKSampler
    return sampler(labels, batch, seed)


class OutsideSampler:
    """The sampler of a user. Its class has `steps_per_epoch` and `draw(step) -> Draw`, a pure function.

    Raises UserError for a draw that is not a batch of the images, or that differs from an equal one.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.batch, self.images, self.excluded_classes = batch, len(labels), 0
        try:
            self._sampler = made(batch, {"labels": labels, "batch": batch, "seed": seed})
            self.steps_per_epoch = int(self._sampler.steps_per_epoch)
            first, again = self.draw(0), self.draw(0)
        except UserError:
            raise
        except Exception as error:  # of code from outside
            raise self._problem(f"raises {type(error).__name__}: {error}") from error
        if not all(map(np.array_equal, first, again)):
            raise self._problem("draws two batches for step 0")

    def draw(self, step: int) -> Draw:
        """The global batch of `step` = 0, 1, 2, ..."""
        draw: Draw = self._sampler.draw(step)
        positions, keys = np.asarray(draw.positions), np.asarray(draw.keys)
        size = (self.batch.size,)
        if (positions.shape, positions.dtype.kind, keys.shape, keys.dtype) != (size, "i", size, np.uint64):
            raise self._problem(
                f"draws positions {positions.shape} of type {positions.dtype} and keys {keys.shape} of type "
                f"{keys.dtype}; expected {size[0]} integers and {size[0]} numbers of type uint64"
            )
        if positions.min() < 0 or positions.max() >= self.images:
            raise self._problem(f"draws a position outside of 0 to {self.images - 1}")
        return Draw(positions.astype(np.int64), keys)

    def _problem(self, what: str) -> UserError:
        remedy = "Correct it, or choose another batch.module."
        return UserError(f"The sampler {self.batch.module} {what}.", remedy)


class ShuffledSampler:
    """Every image once per epoch in random order, without regard to classes (Proxy-Anchor code).

    Images after the last full batch are omitted. Raises UserError if the images do not fill one batch.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.batch, self.seed, self.images, self.excluded_classes = batch, seed, len(labels), 0
        self.steps_per_epoch = len(labels) // batch.size
        self._order: tuple[int, Int64[np.ndarray, N]] | None = None  # epoch, images
        if self.steps_per_epoch == 0:
            raise UserError(
                f"A batch has {batch.size} images, but there are only {len(labels)} train images.",
                "Lower batch.classes or batch.images_per_class. Their product is the size of the batch.",
            )

    def draw(self, step: int) -> Draw:
        """The global batch of `step` = 0, 1, 2, ...

        It takes O(N) for the first step of an epoch and O(B) for the others.
        """
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        epoch, within = divmod(step, self.steps_per_epoch)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, self._permutation(epoch))
        batch = slice(within * self.batch.size, (within + 1) * self.batch.size)
        positions = self._order[1][batch].astype(np.int64)
        return Draw(positions, augmentation_keys(self.seed, epoch, positions, np.zeros_like(positions)))

    def _permutation(self, epoch: int) -> Int64[np.ndarray, "N"]:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, epoch])))
        return generator.permutation(self.images)


class EpochSampler(ShuffledSampler):
    """As ShuffledSampler, for short trainings: all epochs have one generator. Epoch e begins in O(e N)."""

    def _permutation(self, epoch: int) -> Int64[np.ndarray, "N"]:
        generator = np.random.default_rng(self.seed)
        for _ in range(epoch):
            generator.permutation(self.images)
        return generator.permutation(self.images)


class PKSampler:
    """Draws batches of `batch.classes` distinct classes with `batch.images_per_class` images each.

    A class c with n_c images has m_c = max(1, floor(n_c / K)) chunks per epoch. The epoch has
    `steps_per_epoch` batches,

        T = max { t : sum_c min(m_c, t) >= P t },

    the largest number of batches of P distinct classes that these chunks can fill. Chunks beyond these P T,
    and the n_c mod K images after the last full chunk, are omitted at random; they differ between epochs, so
    that all images are used over time. The P T chunks are divided among the batches by `_choose`, for large
    sets (T C > SYSTEMATIC) by trades.py.

    The chunk of a class with fewer than K images contains all of them and random repetitions. A class with
    one image has no positive pair and is excluded, unless K = 1 (proxy losses); `excluded_classes` is the
    number of these classes. Raises UserError if fewer than P classes remain.
    """

    def __init__(self, labels: Int[np.ndarray, "N"], batch: Batch, seed: int) -> None:
        self.batch, self.seed = batch, seed
        classes, members, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        least = min(2, batch.images_per_class)
        self.excluded_classes = int((sizes < least).sum())
        if len(classes) - self.excluded_classes < batch.classes:
            excluded = f" ({self.excluded_classes} more have one image only)" if self.excluded_classes else ""
            remaining = len(classes) - self.excluded_classes
            raise UserError(
                f"A batch needs {batch.classes} classes, but only {remaining} can be trained on{excluded}.",
                f"Set batch.classes={remaining} or lower, or add images of more classes. "
                "Test classes and validation classes are not trained on.",
            )
        usable = np.flatnonzero(sizes[members] >= least)
        # Sorted by class: the images of class c are usable[start[c] : start[c] + sizes[c]].
        self._images = usable[np.argsort(members[usable], kind="stable")]
        self._sizes = sizes[sizes >= least]
        self._chunks = np.maximum(1, self._sizes // batch.images_per_class)
        self.steps_per_epoch = _most_batches(self._chunks, batch.classes)
        self._epoch: _Epoch | None = None

    def draw(self, step: int) -> Draw:
        """The global batch of `step` = 0, 1, 2, ...

        It takes O(N log N) for the first step of an epoch and O(B) for the others.
        """
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        number, within = divmod(step, self.steps_per_epoch)
        epoch = self._epoch
        if epoch is None or epoch.number != number:
            epoch = self._epoch = self._plan(number)
        return Draw(epoch.positions[within], epoch.keys[within])

    def _plan(self, number: int) -> _Epoch:
        generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([self.seed, number])))
        classes, images_per_class, steps = (
            self.batch.classes,
            self.batch.images_per_class,
            self.steps_per_epoch,
        )
        shuffled, start = self._shuffled(generator)

        available = np.minimum(self._chunks, steps)
        remaining = generator.multivariate_hypergeometric(available, classes * steps, method="marginals")
        arrange = _one_by_one if steps * len(remaining) <= SYSTEMATIC else trade
        chosen = arrange(generator, remaining, classes, steps).reshape(-1)
        # The chunks of a class are used in the order of the steps.
        first = start[chosen] + _occurrences(chosen) * images_per_class
        flat = shuffled[first[:, None] + np.arange(images_per_class)].reshape(-1)
        keys = augmentation_keys(self.seed, number, flat, _occurrences(flat))
        return _Epoch(number, flat.reshape(steps, -1), keys.reshape(steps, -1))

    def _shuffled(
        self, generator: np.random.Generator
    ) -> tuple[Int64[np.ndarray, "n"], Int64[np.ndarray, "C"]]:
        """The images of all classes, shuffled within each class, and the position of each class.

        Repetitions follow the images of a class with fewer than K.
        """
        sizes, images_per_class = self._sizes, self.batch.images_per_class
        classes = np.repeat(np.arange(len(sizes)), sizes)
        first = np.cumsum(sizes) - sizes
        missing = np.maximum(0, images_per_class - sizes)
        order = np.lexsort((generator.random(len(classes)), classes))
        small = np.repeat(np.arange(len(sizes)), missing)
        repeated = first[small] + generator.integers(0, sizes[small])
        images = np.concatenate([self._images[order], self._images[repeated]])
        by_class = np.argsort(np.concatenate([classes, small]), kind="stable")  # repetitions after the images
        lengths = sizes + missing
        return images[by_class], np.cumsum(lengths) - lengths


def _most_batches(chunks: Int64[np.ndarray, "C"], classes: int) -> int:
    """max { t : sum_c min(chunks_c, t) >= classes t }.

    min(chunks_c, t) / t decreases with t, so bisection is possible.
    """
    low, high = 1, int(chunks.sum()) // classes
    while low < high:
        middle = (low + high + 1) // 2
        if np.minimum(chunks, middle).sum() >= classes * middle:
            low = middle
        else:
            high = middle - 1
    return low


def _one_by_one(
    generator: np.random.Generator, remaining: Int64[np.ndarray, "C"], classes: int, steps: int
) -> Int64[np.ndarray, "T P"]:
    """The classes of T batches, drawn one after the other, in O(T C)."""
    remaining = remaining.copy()
    chosen = np.empty((steps, classes), np.int64)
    for step in range(steps):
        chosen[step] = _choose(generator, remaining, classes, steps - step)
        remaining[chosen[step]] -= 1
    return chosen


def _choose(
    generator: np.random.Generator, remaining: Int64[np.ndarray, "C"], classes: int, steps: int
) -> Int64[np.ndarray, "P"]:
    """P distinct classes, c with probability remaining_c / steps, by systematic sampling in random order.

    If sum_c remaining_c = P steps and remaining_c <= steps, both remain true afterwards for steps - 1,
    because a class that must be in every remaining batch has probability one. The classes are consecutive
    intervals of length remaining_c; points at distances of `steps` are in each interval at most once.
    """
    order = generator.permutation(np.flatnonzero(remaining))
    points = generator.integers(steps) + steps * np.arange(classes)
    return order[np.searchsorted(np.cumsum(remaining[order]), points, side="right")]


def _occurrences(positions: Int64[np.ndarray, "n"]) -> Int64[np.ndarray, "n"]:
    """The number of earlier occurrences of each entry in the array."""
    order = np.argsort(positions, kind="stable")
    ordered = positions[order]
    begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.concatenate([begins, [len(ordered)]]))
    occurrences = np.empty_like(positions)
    occurrences[order] = np.arange(len(ordered)) - np.repeat(begins, counts)
    return occurrences


def augmentation_keys(
    seed: int, epoch: int, positions: Int64[np.ndarray, "n"], occurrences: Int64[np.ndarray, "n"]
) -> UInt64[np.ndarray, "n"]:
    """A 64-bit hash of (seed, epoch, position, occurrence) by the mixing function of SplitMix64."""
    state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)
    return _mix(_mix(state + positions.astype(np.uint64)) + occurrences.astype(np.uint64))


def _mix(value: UInt64[np.ndarray, "n"]) -> UInt64[np.ndarray, "n"]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
