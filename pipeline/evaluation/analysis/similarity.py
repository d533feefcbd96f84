"""Histograms over [-1, 1] of cosine similarities of positive pairs (same class) and negative pairs.

If there are at most `limit` pairs of a kind, all are counted. Otherwise a seeded generator draws `limit`
pairs uniformly. The overlap of the two normalised histograms, sum_b min(p_b, n_b), is 0 if a threshold
separates them and 1 if they are equal.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from unseen.evaluation.analysis.rows import unit_blocks

_CHUNK = 65536  # pairs; two gathered arrays of 65,536 x 512 float32 are 256 MiB
_BLOCK = 2**22  # similarities of a block of rows with all others
_PIECE = 2**15  # similarities counted at a time, so that the intermediate arrays stay in the cache


@dataclass(frozen=True)
class Histogram:
    """`share` sums to 1 (zeros without pairs).

    `mean` and `std` are those of the similarities, NaN without pairs.
    """

    share: Float[np.ndarray, " b"]
    mean: float
    std: float
    pairs: int  # counted
    of: int  # existing pairs


@dataclass(frozen=True)
class Similarities:
    edges: Float[np.ndarray, " b1"]
    positive: Histogram
    negative: Histogram

    @property
    def overlap(self) -> float:
        return float(np.minimum(self.positive.share, self.negative.share).sum())


def similarities(
    embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], bins: int, limit: int, seed: int = 0
) -> Similarities:
    """Histograms of both kinds with `bins` equal bins.

    Time is O(min(N^2, limit) D); memory is independent of the number of pairs.
    """
    unit = np.empty(embeddings.shape, dtype=np.float32)
    for rows, block in unit_blocks(embeddings):
        unit[rows] = block
    order = np.argsort(labels, kind="stable")  # classes become contiguous runs
    unit = unit[order]
    _, starts, counts = np.unique(np.asarray(labels)[order], return_index=True, return_counts=True)
    ends = np.repeat(starts + counts, counts)  # position after the class of each row

    n = len(unit)
    positives = int((counts * (counts - 1) // 2).sum())
    negatives = n * (n - 1) // 2 - positives
    generator = np.random.default_rng(seed)
    tallies = []
    for total, draw in ((positives, _positive_pairs), (negatives, negative_pairs)):
        tally = _Tally(bins)
        if total <= limit:
            _count_all(unit, ends, tally, positive=draw is _positive_pairs)
        else:
            for done in range(0, limit, _CHUNK):
                left, right = draw(generator, starts, counts, min(_CHUNK, limit - done))
                tally.add(np.einsum("pd,pd->p", unit[left], unit[right]))
        tallies.append(tally.histogram(total))
    return Similarities(np.linspace(-1, 1, bins + 1), tallies[0], tallies[1])


def histogram_of(values: Float[np.ndarray, " p"], bins: int) -> Histogram:
    """The histogram of given similarities, of which all are counted."""
    tally = _Tally(bins)
    tally.add(values)
    return tally.histogram(len(values))


class _Tally:
    """Bin counts and first two moments of a stream."""

    def __init__(self, bins: int) -> None:
        self.counts = np.zeros(bins, dtype=np.int64)
        self.total = self.squares = 0.0

    def add(self, values: Float[np.ndarray, " p"]) -> None:
        bins = len(self.counts)
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE].astype(np.float64)
            self.total += float(piece.sum())
            self.squares += float(piece @ piece)
            piece += 1
            piece *= bins / 2
            # truncation maps values just below -1 to bin 0; 1 is in the last bin
            position = piece.astype(np.intp)
            self.counts += np.bincount(np.minimum(position, bins - 1, out=position), minlength=bins)

    def histogram(self, of: int) -> Histogram:
        pairs = int(self.counts.sum())
        if not pairs:
            return Histogram(np.zeros(len(self.counts)), float("nan"), float("nan"), 0, of)
        mean = self.total / pairs
        std = max(self.squares / pairs - mean**2, 0.0) ** 0.5
        return Histogram(self.counts / pairs, mean, std, pairs, of)


def _count_all(
    unit: Float[np.ndarray, "N D"], ends: Int[np.ndarray, " N"], tally: _Tally, positive: bool
) -> None:
    """Counts every pair i < j once. In class order, row i has positives i+1..end and negatives end..N."""
    n = len(unit)
    column = np.arange(n)
    block = max(1, _BLOCK // max(n, 1))
    for start in range(0, n, block):
        row = np.arange(start, min(start + block, n))
        # The columns from first to last are in a class of the block; later columns are negatives of all its
        # rows.
        first, last = start if positive else int(ends[start]), int(ends[row[-1]])
        same_class = column[None, first:last] < ends[row, None]
        counted = same_class & (column[None, first:last] > row[:, None]) if positive else ~same_class
        tally.add((unit[row] @ unit[first:last].T)[counted])
        if not positive:
            tally.add((unit[row] @ unit[last:].T).ravel())


def _positive_pairs(
    generator: np.random.Generator, starts: Int[np.ndarray, " C"], counts: Int[np.ndarray, " C"], size: int
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    weight = (counts * (counts - 1)).astype(np.float64)
    label = generator.choice(len(counts), size=size, p=weight / weight.sum())
    left = generator.integers(0, counts[label])
    right = generator.integers(0, counts[label] - 1)
    right += right >= left  # skips the image itself
    return starts[label] + left, starts[label] + right


def negative_pairs(
    generator: np.random.Generator, starts: Int[np.ndarray, " C"], counts: Int[np.ndarray, " C"], size: int
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """Draws ordered negative pairs.

    The left row has weight N - N_c, the right row is uniform over the other classes.
    """
    n = int(counts.sum())
    weight = (counts * (n - counts)).astype(np.float64)
    label = generator.choice(len(counts), size=size, p=weight / weight.sum())
    left = starts[label] + generator.integers(0, counts[label])
    right = generator.integers(0, n - counts[label])
    right += np.where(right >= starts[label], counts[label], 0)  # skips the class
    return left, right
