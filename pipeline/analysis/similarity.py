"""Cosine similarities of positive pairs (same class) and negative pairs (different classes), as histograms over [-1, 1].

Where there are at most `limit` pairs of a kind all of them are counted; otherwise `limit` pairs are drawn, uniformly over the pairs of that
kind, by a seeded generator. The overlap of the two normalised histograms, sum_b min(p_b, n_b), is 0 when a threshold separates them and 1
when they are the same.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from pipeline.analysis.rows import unit_blocks

_CHUNK = 65536  # pairs; two gathered sides of 65,536 x 512 float32 are 256 MiB
_BLOCK = 2**22  # similarities of a block of rows against all others
_PIECE = 2**15  # similarities counted at a time: what is made of them stays in the cache


@dataclass(frozen=True)
class Histogram:
    """`share` sums to 1 (all zeros without pairs); `mean` and `std` are of the similarities themselves, NaN without pairs."""

    share: Float[np.ndarray, " b"]
    mean: float
    std: float
    pairs: int  # counted
    of: int  # that exist


@dataclass(frozen=True)
class Similarities:
    edges: Float[np.ndarray, " b1"]
    positive: Histogram
    negative: Histogram

    @property
    def overlap(self) -> float:
        return float(np.minimum(self.positive.share, self.negative.share).sum())


def similarities(embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], bins: int, limit: int, seed: int = 0) -> Similarities:
    """Histograms of both kinds with `bins` equal bins. O(min(N^2, limit) D); memory does not grow with the number of pairs."""
    unit = np.empty(embeddings.shape, dtype=np.float32)
    for rows, block in unit_blocks(embeddings):
        unit[rows] = block
    order = np.argsort(labels, kind="stable")  # classes contiguous: a positive pair is two positions of one run
    unit = unit[order]
    _, starts, counts = np.unique(np.asarray(labels)[order], return_index=True, return_counts=True)
    ends = np.repeat(starts + counts, counts)  # of each row: where its class ends

    n = len(unit)
    positives = int((counts * (counts - 1) // 2).sum())
    negatives = n * (n - 1) // 2 - positives
    generator = np.random.default_rng(seed)
    tallies = []
    for total, draw in ((positives, _positive_pairs), (negatives, _negative_pairs)):
        tally = _Tally(bins)
        if total <= limit:
            _count_all(unit, ends, tally, positive=draw is _positive_pairs)
        else:
            for done in range(0, limit, _CHUNK):
                left, right = draw(generator, starts, counts, min(_CHUNK, limit - done))
                tally.add(np.einsum("pd,pd->p", unit[left], unit[right]))
        tallies.append(tally.histogram(total))
    return Similarities(np.linspace(-1, 1, bins + 1), tallies[0], tallies[1])


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
            position = piece.astype(np.intp)  # what rounding put below -1 is cut off to 0; +1 belongs to the last bin
            self.counts += np.bincount(np.minimum(position, bins - 1, out=position), minlength=bins)

    def histogram(self, of: int) -> Histogram:
        pairs = int(self.counts.sum())
        if not pairs:
            return Histogram(np.zeros(len(self.counts)), float("nan"), float("nan"), 0, of)
        mean = self.total / pairs
        return Histogram(self.counts / pairs, mean, max(self.squares / pairs - mean**2, 0.0) ** 0.5, pairs, of)


def _count_all(unit: Float[np.ndarray, "N D"], ends: Int[np.ndarray, " N"], tally: _Tally, positive: bool) -> None:
    """Every pair i < j once: in class order row i's positives are i+1..end, its negatives end..N. Blocks bound the memory."""
    n = len(unit)
    column = np.arange(n)
    block = max(1, _BLOCK // max(n, 1))
    for start in range(0, n, block):
        row = np.arange(start, min(start + block, n))
        first, last = start if positive else int(ends[start]), int(ends[row[-1]])  # between them a column is of the class of some row
        inside = column[None, first:last] < ends[row, None]
        wanted = inside & (column[None, first:last] > row[:, None]) if positive else ~inside
        tally.add((unit[row] @ unit[first:last].T)[wanted])
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


def _negative_pairs(
    generator: np.random.Generator, starts: Int[np.ndarray, " C"], counts: Int[np.ndarray, " C"], size: int
) -> tuple[Int[np.ndarray, " p"], Int[np.ndarray, " p"]]:
    """An ordered negative pair has a left side of weight N - N_c; the right side is uniform outside the left one's class."""
    n = int(counts.sum())
    weight = (counts * (n - counts)).astype(np.float64)
    label = generator.choice(len(counts), size=size, p=weight / weight.sum())
    left = starts[label] + generator.integers(0, counts[label])
    right = generator.integers(0, n - counts[label])
    right += np.where(right >= starts[label], counts[label], 0)  # jumps over the class
    return left, right
