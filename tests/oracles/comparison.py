"""Holm's procedure and the interval over classes and seeds by their descriptions."""

import math
import statistics

import numpy as np
import scipy.stats


def holm_rejects(p_values: list[float], alpha: float) -> list[bool]:
    """Rejects step by step until one hypothesis is not rejected."""
    rejected = [False] * len(p_values)
    for step, (p_value, index) in enumerate(sorted((p, place) for place, p in enumerate(p_values))):
        if p_value > alpha / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


def interval_of_classes(
    means: list[float], images: list[float], by_seed: list[float], confidence: float
) -> tuple[float, float]:
    """The interval of an average over classes, and over seeds if there are several: the sums of intervals.py,
    and Hall's cubic solved for its ends. by_seed: the average of each seed."""
    count, total = len(means), sum(images)
    weights = [each / total for each in images]
    square = sum(weight**2 for weight in weights)
    average = sum(weight * mean for weight, mean in zip(weights, means, strict=True))
    parts = [
        weight * (mean - average) / math.sqrt(1 - 2 * weight + square)
        for weight, mean in zip(weights, means, strict=True)
    ]
    variance, freedom = sum(part**2 for part in parts), 1 / square - 1
    third = sum(part**3 for part in parts) * count**2 / ((count - 1) * (count - 2))
    if len(by_seed) > 1:
        of_seeds = statistics.variance(by_seed) / len(by_seed)
        both = variance + of_seeds
        freedom = both**2 / (variance**2 / freedom + of_seeds**2 / (len(by_seed) - 1))
        variance = both
    skewness, deviation = third / variance**1.5, math.sqrt(variance)
    quantile = float(scipy.stats.t.ppf((1 + confidence) / 2, freedom))
    ends = []
    for end in (quantile, -quantile):
        cubic = [skewness**2 / 27, skewness / 3, 1, skewness / 6 - end]
        (root,) = (value.real for value in np.roots(cubic) if abs(value.imag) < 1e-9)
        ends += [average - deviation * root, average - deviation * end]
    return min(ends), max(ends)
