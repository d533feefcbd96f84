"""False non-match rate at a false match rate: errors of a threshold on the similarity of two images.

    FMR(t)  = share of the pairs of different classes with s >= t     (false match rate)
    FNMR(t) = share of the pairs of one class with s < t              (false non-match rate)
    FNMR at FMR f = FNMR(t_f),  t_f = the lowest t with FMR(t) <= f

s: cosine of two images. Pairs are unordered, and all of them count. Terms of ISO/IEC 19795-1. Thresholds are
the edges of FINE equal bins of [-1, 1], so t_f is at most 2 / FINE above the exact one; FMR and FNMR at t_f
are those of all pairs.

The intervals contain the middle `confidence` of FNMR* at FMR* = f over resampled classes, with t_f of each
resample (Bolle, Ratha and Pankanti, "Error analysis of pattern recognition systems: the subsets bootstrap",
2004). With w_c the number of draws of class c, a pair of one class has weight w_c and a pair
of classes c and d has weight w_c w_d: two draws of a class are two classes without pairs between them.

With more than GROUPS classes, the intervals resample GROUPS random groups of classes instead (Wolter,
Introduction to Variance Estimation, 2007, ch. 2), so that memory does not grow with the classes. Within a
group, pairs of different classes have weight w. Between the steps of a coarser grid of thresholds, FMR* and
FNMR* are interpolated.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, Int64

from unseen.evaluation.analysis.rows import unit_blocks
from unseen.evaluation.analysis.similarity import negative_pairs

RATES = (0.1, 0.01, 0.001)  # FMR
FINE = 2**16  # thresholds of the rates
GROUPS = 256  # of classes, whose pairs are counted separately for the intervals
CELLS = 2**23  # counts of pairs of groups; int64: 64 MiB
STEPS = (128, 2048)  # fewest and most thresholds of the intervals
SAMPLE = 2**18  # pairs that place them
LEAST_RATE = 1e-5  # smallest FMR between two of them
BLOCK = 2**21  # similarities at a time
RESAMPLES = 128  # at a time


@dataclass(frozen=True)
class OperatingPoint:
    """The errors at one threshold. FNMR and its interval are shares."""

    rate: float  # the FMR that was asked
    threshold: float  # t_f, a cosine
    fmr: float  # FMR(t_f) <= rate
    fnmr: float
    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """The bootstrap over classes: resamples, share of them inside the interval, seed."""

    resamples: int
    confidence: float
    seed: int


def operating_points(
    embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], intervals: Intervals
) -> list[OperatingPoint]:
    """The operating point of each of RATES that the pairs can measure: at least one pair of different classes
    is a false match at this rate. Empty without pairs of one class or of different classes.

    Time is O(N^2 D). Memory is O(N D) and 300 MiB.
    """
    counts = _count(embeddings, labels)
    total, of_same = int(counts.different.sum()), int(counts.same.sum())
    if not total or not of_same:
        return []
    above = _at_least(counts.different)
    below = of_same - _at_least(counts.same)
    rates = [rate for rate in RATES if rate * total >= 1]
    resampled = _resampled(counts, rates, intervals)
    tail = (1 - intervals.confidence) / 2
    points = []
    for rate, values in zip(rates, resampled, strict=True):
        step = int(np.argmax(above <= rate * total))
        low, high = np.quantile(values, [tail, 1 - tail])
        points.append(
            OperatingPoint(
                rate=rate,
                threshold=2 * step / FINE - 1,
                fmr=int(above[step]) / total,
                fnmr=int(below[step]) / of_same,
                low=float(low),
                high=float(high),
            )
        )
    return points


@dataclass(frozen=True)
class _Counts:
    """Numbers of pairs by similarity: in FINE bins, and between groups in coarser ones."""

    same: Int64[np.ndarray, " F"]
    different: Int64[np.ndarray, " F"]
    same_of: Int64[np.ndarray, "G S"]
    different_of: Int64[np.ndarray, "G G S"]  # [g, h] of groups g <= h


def _count(embeddings: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> _Counts:
    """All pairs, each once. Rows are ordered by group and class, and a tile has rows of one group, and all
    columns from the first row of that group."""
    _, label = np.unique(labels, return_inverse=True)
    classes = int(label.max()) + 1
    groups = min(classes, GROUPS)
    group_of = np.arange(classes)
    if classes > GROUPS:
        group_of = np.random.default_rng(0).permutation(classes) % GROUPS
    order = np.lexsort((label, group_of[label]))
    unit = np.empty(embeddings.shape, dtype=np.float32)
    for rows, block in unit_blocks(embeddings):
        unit[rows] = block
    unit, label = unit[order], label[order]
    group = group_of[label]
    bounds = np.searchsorted(group, np.arange(groups + 1))
    coarse = _coarse(unit, label, min(max(CELLS // groups**2, STEPS[0]), STEPS[1]))
    steps = int(coarse[-1]) + 1
    counts = _Counts(
        same=np.zeros(FINE, np.int64),
        different=np.zeros(FINE, np.int64),
        same_of=np.zeros((groups, steps), np.int64),
        different_of=np.zeros((groups, groups, steps), np.int64),
    )
    column_cells = (group * steps).astype(np.int32)
    for first, last, here in zip(bounds[:-1], bounds[1:], range(groups), strict=True):
        height = max(1, BLOCK // (len(unit) - int(first)))
        for start in range(int(first), int(last), height):
            rows = slice(start, min(start + height, int(last)))
            tile = unit[rows] @ unit[first:].T
            bins = _bins(tile)
            inside, outside = bins[:, : last - first], bins[:, last - first :]
            is_pair = np.arange(first, last) > np.arange(rows.start, rows.stop)[:, None]
            is_same = label[rows, None] == label[first:last]
            for selected, fine, of_group in (
                (inside[is_pair & is_same], counts.same, counts.same_of[here]),
                (inside[is_pair & ~is_same], counts.different, counts.different_of[here, here]),
            ):
                fine += np.bincount(selected, minlength=FINE)
                of_group += np.bincount(coarse[selected], minlength=steps)
            counts.different[:] += np.bincount(outside.ravel(), minlength=FINE)
            cells = coarse[outside] + column_cells[last:]
            of_pair = np.bincount(cells.ravel(), minlength=groups * steps)
            counts.different_of[here] += of_pair.reshape(groups, steps)
    return counts


def _bins(similarities: Float[np.ndarray, "n w"]) -> Int[np.ndarray, "n w"]:
    """Bin b has the similarities in [2 b / FINE - 1, 2 (b + 1) / FINE - 1). Overwrites its argument."""
    similarities += 1
    similarities *= FINE / 2
    np.clip(similarities, 0, FINE - 1, out=similarities)
    return similarities.astype(np.int32)


def _coarse(unit: Float[np.ndarray, "N D"], label: Int[np.ndarray, " N"], most: int) -> Int[np.ndarray, " F"]:
    """The coarse bin of each fine one: at most `most`, with equal ratios of the FMR at their edges from 1 to
    LEAST_RATE, by a sample of pairs. The rows of a class are consecutive."""
    change = np.flatnonzero(np.diff(label, prepend=-1))
    sizes = np.diff(change, append=len(label))
    edges = np.zeros(1, np.int64)
    if len(change) > 1:
        generator = np.random.default_rng(0)
        sampled = np.empty(SAMPLE, np.float32)
        for begin in range(0, SAMPLE, 2**14):
            left, right = negative_pairs(generator, change, sizes, 2**14)
            sampled[begin : begin + 2**14] = np.einsum("pd,pd->p", unit[left], unit[right])
        levels = LEAST_RATE ** np.linspace(0, 1, most - 1)
        edges = np.quantile(_bins(sampled[None])[0], 1 - levels, method="lower").astype(np.int64)
        edges = np.unique(np.concatenate([[0], edges, edges[-1:] + 1]))
    is_edge = np.zeros(FINE + 1, np.int32)
    is_edge[edges] = 1
    return (np.cumsum(is_edge[:FINE]) - 1).astype(np.int32)


def _at_least(counts: Int64[np.ndarray, " F"]) -> Int64[np.ndarray, " F1"]:
    """The number of pairs at or above each edge, with the upper end of the last bin."""
    return np.append(counts[::-1].cumsum()[::-1], 0)


def resampled_weights(groups: int, intervals: Intervals) -> Float64[np.ndarray, "K G"]:
    """w_c of all K resamples."""
    drawn = np.random.default_rng(intervals.seed).integers(groups, size=(intervals.resamples, groups))
    return np.stack([np.bincount(row, minlength=groups) for row in drawn]).astype(np.float64)


def _resampled_pairs(
    counts: _Counts, weights: Float64[np.ndarray, "K G"]
) -> tuple[Float64[np.ndarray, "K S1"], Float64[np.ndarray, "K S1"]]:
    """The numbers of pairs at or above each edge in the resamples: of one class, and of different ones.

    All values are whole numbers, so that their sums are exact in any order.
    """
    first, second = np.triu_indices(len(counts.same_of))
    of_pair = counts.different_of[first, second].astype(np.float64)
    same, different = np.zeros((2, len(weights), of_pair.shape[1] + 1))
    for start in range(0, len(weights), RESAMPLES):
        rows = slice(start, start + RESAMPLES)
        drawn = weights[rows]
        same[rows, :-1] = drawn @ counts.same_of
        different[rows, :-1] = (drawn[:, first] * np.where(first == second, 1, drawn[:, second])) @ of_pair
    return same[:, ::-1].cumsum(axis=1)[:, ::-1], different[:, ::-1].cumsum(axis=1)[:, ::-1]


def _resampled(counts: _Counts, rates: list[float], intervals: Intervals) -> list[Float64[np.ndarray, " k"]]:
    """FNMR* at each rate in the resamples that have both kinds of pairs."""
    same, different = _resampled_pairs(counts, resampled_weights(len(counts.same_of), intervals))
    usable = (different[:, 0] > 0) & (same[:, 0] > 0)
    fmr = different[usable] / different[usable, :1]
    fnmr = 1 - same[usable] / same[usable, :1]
    row = np.arange(len(fmr))
    result = []
    for rate in rates:
        reached = np.argmax(fmr <= rate, axis=1)  # at least 1, because FMR* is 1 at the first edge
        before = fmr[row, reached - 1]
        part = (before - rate) / (before - fmr[row, reached])
        low, high = fnmr[row, reached - 1], fnmr[row, reached]
        result.append(low + part * (high - low))
    return result
