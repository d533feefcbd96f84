"""Paired comparison of two methods on the same queries.

With d_q = second - first for query q (positive if the second method is better in a metric of which more is
better), after averaging each method over its seeds:

    difference    mean_q d_q, with the percentile interval of class resamples of d (bootstrap.py); a resample
                  takes the same classes of both methods
    p value       sign-flip permutation test by class (sign_flips.py)

The comparison is about these trainings on other classes; seeds.py is about other trainings.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from unseen.evaluation.statistics.bootstrap import resampled_averages
from unseen.evaluation.statistics.sign_flips import sign_flip_tests


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
    """`compare_pairs` of two methods that were trained S and T times.

    The number of sign flips is that of resamples.
    """
    return compare_pairs([first, second], [(0, 1)], labels, resamples, resamples, confidence, seed)[0]


def compare_pairs(
    methods: Sequence[Float64[np.ndarray, "_ Q"]],
    pairs: Sequence[tuple[int, int]],
    labels: Int64[np.ndarray, "Q"],
    resamples: int,
    flips: int,
    confidence: float,
    seed: int,
) -> list[Comparison]:
    """Paired comparisons on Q queries of methods with one or more runs each.

    Lone queries are NaN in all methods.

    A comparison refers to these trainings on other classes: runs are averaged per query, classes are
    resampled and flipped. All pairs share the draws, so the cost grows with the number of methods and not
    with that of pairs. pairs: (first, second) by position in `methods`. resamples: of the intervals. flips:
    sign vectors of the p values. Raises ValueError if the methods do not have the same lone queries.
    """
    scored = _scored(methods[0])
    if not all(np.array_equal(scored, _scored(values)) for values in methods[1:]):
        raise ValueError("the methods were not scored on the same queries")
    means, labels = np.stack([values[:, scored].mean(axis=0) for values in methods]), labels[scored]
    # Relative to the first method, so that the difference of equal methods is exactly zero.
    relative = means - means[0]
    averages = resampled_averages(relative.T, labels, resamples, seed)
    _, member = np.unique(labels, return_inverse=True)
    sums = np.stack([np.bincount(member, row) for row in relative], axis=1)
    p_values, exact = sign_flip_tests(sums, pairs, flips, seed)
    tail = (1 - confidence) / 2
    comparisons = []
    for (first, second), p_value in zip(pairs, p_values.tolist(), strict=True):
        low, high = np.quantile(averages[:, second] - averages[:, first], [tail, 1 - tail])
        comparisons.append(
            Comparison(
                first=float(means[first].mean()),
                second=float(means[second].mean()),
                difference=float((means[second] - means[first]).mean()),
                low=float(low),
                high=float(high),
                p_value=p_value,
                queries=len(labels),
                classes=len(sums),
                exact=exact,
            )
        )
    return comparisons


def _scored(values: Float64[np.ndarray, "S Q"]) -> Bool[np.ndarray, "Q"]:
    missing = np.isnan(values)
    if (missing.any(axis=0) != missing.all(axis=0)).any():
        raise ValueError("the runs were not scored on the same queries")
    return ~missing[0]
