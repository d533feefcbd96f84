"""Pairs of classes whose labels are doubtful by the embedding.

    m   median cosine of all pairs of images of one class
    two classes are listed if a pair of images, one of each, has a cosine above m

Such images are more similar than half of the pairs within a class: one of them may have the wrong label, both
classes may be one product, or the network does not separate them.

Rows are ordered by class, so that the largest cosine of two classes and the number of their pairs above m are
reductions of a rectangle. Memory is that of the vectors and about 300 MiB, for any number of images, of
classes, and of pairs above m.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int, Int64, UInt32

_BLOCK = 1 << 24  # cosines in memory at a time
_HALF = 1 << 16  # values of half of the bits of a float32


@dataclass(frozen=True)
class SimilarClasses:
    """Two classes: their most similar images, and how many pairs of images are above m."""

    first: int  # position in the embeddings
    second: int
    similarity: float
    pairs: int


@dataclass(frozen=True)
class Doubtful:
    """`median`: m, None without a class of two images. `similar`: the most similar classes first."""

    median: float | None
    classes: int  # pairs of classes above m
    similar: tuple[SimilarClasses, ...]


def doubtful_labels(vectors: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], most: int) -> Doubtful:
    """The `most` pairs of classes with the largest cosine above m, of unit vectors."""
    order = np.argsort(labels, kind="stable")
    ordered, starts = vectors[order], np.flatnonzero(np.diff(labels[order], prepend=labels.min() - 1))
    median = _median(lambda: _within(ordered, starts))
    if median is None:
        return Doubtful(None, 0, ())
    listed = 0
    pairs = np.empty((0, 3), np.int64)  # two classes, their number of pairs of images above m
    largest = np.empty(0, np.float32)
    for number, highest, above in _between(ordered, starts, median):
        (later,) = np.nonzero(highest > median)
        listed += len(later)
        added = np.stack([np.full(len(later), number), number + 1 + later, above[later]], axis=1)
        pairs, largest = np.concatenate([pairs, added]), np.concatenate([largest, highest[later]])
        best = np.lexsort((pairs[:, 1], pairs[:, 0], -largest))[:most]
        pairs, largest = pairs[best], largest[best]
    members = np.split(order, starts[1:])
    similar = []
    for (first, second, count), cosine in zip(pairs.tolist(), largest.tolist(), strict=True):
        images = _most_similar(vectors, members[first], members[second])
        similar.append(SimilarClasses(*images, cosine, count))
    return Doubtful(median, listed, tuple(similar))


def _between(
    ordered: Float[np.ndarray, "N D"], starts: Int64[np.ndarray, " C"], median: float
) -> Iterator[tuple[int, Float[np.ndarray, " E"], Int64[np.ndarray, " E"]]]:
    """For each class, with all later classes: the largest cosine, and the number of pairs of images above
    `median`."""
    ends = np.append(starts[1:], len(ordered))
    first, begin = 0, 0  # class and row that come next
    highest, above = _nothing(len(starts))
    while first < len(starts) - 1:
        columns = ordered[starts[first] :]
        stop = min(begin + max(1, _BLOCK // len(columns)), len(ordered))
        cosines = ordered[begin:stop] @ columns.T
        last = int(np.searchsorted(starts, stop, side="left")) - 1  # class of the last row
        rows = np.maximum(starts[first : last + 1], begin) - begin
        places = starts[first:] - starts[first]
        largest = np.maximum.reduceat(np.maximum.reduceat(cosines, rows, axis=0), places, axis=1)
        count = np.add.reduceat(cosines > median, rows, axis=0, dtype=np.int32)
        counts = np.add.reduceat(count, places, axis=1, dtype=np.int64)
        for number in range(first, last + 1):  # columns: the classes from `first`
            row, later = number - first, number - first + 1
            highest = np.maximum(highest, largest[row, later:])
            above = above + counts[row, later:]
            if ends[number] <= stop:
                yield number, highest, above
                highest, above = _nothing(len(starts) - number - 1)
        first, begin = last + int(ends[last] <= stop), stop


def _nothing(classes: int) -> tuple[Float32[np.ndarray, " E"], Int64[np.ndarray, " E"]]:
    """Of a class without rows, with `classes - 1` later ones."""
    later = max(classes - 1, 0)
    return np.full(later, -np.inf, np.float32), np.zeros(later, np.int64)


def _most_similar(
    vectors: Float[np.ndarray, "N D"], first: Int64[np.ndarray, " a"], second: Int64[np.ndarray, " b"]
) -> tuple[int, int]:
    """The most similar images of two classes, in ascending order."""
    best: tuple[float, int, int] | None = None
    height = max(1, _BLOCK // len(second))
    for start in range(0, len(first), height):
        rows = first[start : start + height]
        cosines = vectors[rows] @ vectors[second].T
        left, right = np.nonzero(cosines == cosines.max())
        images = np.sort(np.stack([rows[left], second[right]], axis=1), axis=1)
        lower, upper = min(map(tuple, images.tolist()))
        found = -float(cosines.max()), lower, upper
        best = found if best is None else min(best, found)
    assert best is not None
    return best[1:]


def _within(
    ordered: Float[np.ndarray, "N D"], starts: Int64[np.ndarray, " C"]
) -> Iterator[Float32[np.ndarray, " p"]]:
    """The cosines of all pairs of images of one class."""
    for begin, end in zip(starts, np.append(starts[1:], len(ordered)), strict=True):
        members = ordered[begin:end]
        height = max(1, _BLOCK // len(members))
        for start in range(0, len(members), height):
            rows, columns = members[start : start + height], members[start:]
            is_pair = np.arange(len(columns)) > np.arange(len(rows))[:, None]
            yield (rows @ columns.T)[is_pair].astype(np.float32, copy=False)


def _median(values: Callable[[], Iterator[Float32[np.ndarray, " p"]]]) -> float | None:
    """The median of all values, None without a value. `values` is read twice and gives the same parts: the
    upper halves of the bits of the middle values are found first, then the lower halves."""
    upper = np.zeros(_HALF, np.int64)
    for part in values():
        upper += np.bincount(_bits(part) >> 16, minlength=_HALF)
    total = int(upper.sum())
    if not total:
        return None
    middle = np.array([(total - 1) // 2, total // 2])
    high = np.searchsorted(upper.cumsum(), middle, side="right")
    lower = np.zeros((2, _HALF), np.int64)
    for part in values():
        bits = _bits(part)
        for half, counts in zip(high, lower, strict=True):
            counts += np.bincount(bits[bits >> 16 == half] & (_HALF - 1), minlength=_HALF)
    rank = middle - (upper.cumsum() - upper)[high]
    low = [
        np.searchsorted(counts.cumsum(), place, side="right")
        for counts, place in zip(lower, rank, strict=True)
    ]
    found = (high.astype(np.uint32) << 16) | np.array(low, np.uint32)
    return float(_numbers(found).astype(np.float64).mean())


def _bits(values: Float32[np.ndarray, " p"]) -> UInt32[np.ndarray, " p"]:
    """Integers of 32 bits in the order of the values."""
    bits = values.view(np.uint32)
    return bits ^ np.where(bits >> 31, np.uint32(0xFFFFFFFF), np.uint32(1 << 31))


def _numbers(bits: UInt32[np.ndarray, " p"]) -> Float32[np.ndarray, " p"]:
    """The inverse of `_bits`."""
    return (bits ^ np.where(bits >> 31, np.uint32(1 << 31), np.uint32(0xFFFFFFFF))).view(np.float32)
