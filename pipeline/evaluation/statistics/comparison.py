"""Paired comparison of two methods on the same queries.

With d_q = second - first for query q (positive if the second method is better in a metric of which more is
better), after averaging each method over its seeds:

    difference    mean_q d_q, with the percentile interval of class resamples of d (bootstrap.py); a resample
                  takes the same classes of both methods
    p value       sign-flip permutation test by class. If the methods are exchangeable, swapping them in any
                  class leaves the distribution of the difference as it is:
                      p = (1 + #{|T_e| >= |T|}) / (1 + #e),   T_e = sum_c e_c sum_{q in c} d_q,   e_c = +-1
                  over drawn e with equal probability of both signs, or exactly p = #{|T_e| >= |T|} / 2^C over
                  all e if there are at most as many as would be drawn
                  (Ernst, Permutation methods, 2004, sec. 3; the 1 is the identity, Phipson and Smyth 2010)

The comparison is about these trainings on other classes; seeds.py is about other trainings.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from pipeline.evaluation.statistics.bootstrap import class_intervals

CHUNK = 256  # sign vectors in memory at a time
ROUNDING = 1e-12  # relative; equal sums that were added in different orders differ by less


class Comparison(NamedTuple):
    """A second method compared with a first, on the same queries."""

    first: float
    second: float
    difference: float  # second - first
    low: float
    high: float
    p_value: float  # two-sided
    queries: int
    classes: int
    exact: bool  # whether all sign vectors were counted


def compare(
    first: Float64[np.ndarray, "S Q"],
    second: Float64[np.ndarray, "T Q"],
    labels: Int64[np.ndarray, "Q"],
    resamples: int,
    confidence: float,
    seed: int,
) -> Comparison:
    """Compares two methods on Q queries, trained S and T times; NaN for lone queries in both.

    `resamples` is the number of class resamples and of sign vectors. Raises ValueError if the methods have
    different lone queries.
    """
    scored = _scored(first)
    if not np.array_equal(scored, _scored(second)):
        raise ValueError("the two methods were not scored on the same queries")
    of_first, of_second = first[:, scored].mean(axis=0), second[:, scored].mean(axis=0)
    labels, difference = labels[scored], of_second - of_first
    low, high = class_intervals(difference[:, None], labels, resamples, confidence, seed)
    _, member = np.unique(labels, return_inverse=True)
    sums = np.bincount(member, difference)
    p_value, exact = sign_flip_test(sums, resamples, seed)
    return Comparison(
        float(of_first.mean()),
        float(of_second.mean()),
        float(difference.mean()),
        float(low[0]),
        float(high[0]),
        p_value,
        len(labels),
        len(sums),
        exact,
    )


def sign_flip_test(sums: Float64[np.ndarray, "C"], permutations: int, seed: int) -> tuple[float, bool]:
    """Two-sided p value of sum_c D_c under independent signs of the C terms, and whether it is exact."""
    classes = len(sums)
    least = abs(sums.sum()) - ROUNDING * np.abs(sums).sum()
    exact = classes < 63 and 2**classes <= permutations
    count = 2**classes if exact else permutations
    random = np.random.default_rng(seed)
    as_large = 0
    for start in range(0, count, CHUNK):
        size = min(CHUNK, count - start)
        all_flips = (np.arange(start, start + size)[:, None] >> np.arange(classes)) & 1
        flipped = all_flips if exact else random.integers(2, size=(size, classes))
        as_large += int((np.abs((1 - 2 * flipped) @ sums) >= least).sum())
    return (as_large / count if exact else (1 + as_large) / (1 + count)), exact


def _scored(values: Float64[np.ndarray, "S Q"]) -> Bool[np.ndarray, "Q"]:
    missing = np.isnan(values)
    if (missing.any(axis=0) != missing.all(axis=0)).any():
        raise ValueError("the runs were not scored on the same queries")
    return ~missing[0]
