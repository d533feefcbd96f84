"""Intervals of averages over classes, and over classes and seeds, in closed form.

Images of one class share their neighbours and so are dependent; classes are independent. With y_c the mean of
a metric over the n_c images of class c of C, and w_c = n_c / sum n,

    average        y = sum_c w_c y_c
    influence      u_c = w_c (y_c - y) / sqrt(1 - 2 w_c + sum w^2)
    variance       v = sum_c u_c^2                  (CR2, Bell and McCaffrey 2002)
    freedom        f = 1 / sum w^2 - 1              (C - 1 for classes of one size; Kish 1965)
    skewness       g = C^2 / ((C - 1) (C - 2)) sum_c u_c^3 / v^1.5
    interval       y - sqrt(v) h(q) to y - sqrt(v) h(-q),  q: quantile of Student's t of f degrees
                   h(x) = 3 / g ((1 + g (x - g / 6))^(1/3) - 1)    (Hall 1992), joined with h(x) = x

Hall's h removes the skewness of the average to second order; the symmetric interval is added, because the
skewness of few classes is uncertain. Averages of several places add their influences of a class. Seeds add
their variance and freedom, those of the means m_s of S seeds, by Welch and Satterthwaite:

    variance       v + s^2,  s^2 = sum_s (m_s - m)^2 / (S (S - 1))
    freedom        (v + s^2)^2 / (v^2 / f + s^4 / (S - 1))

docs/statistics.md has the coverage by simulation: 95% intervals contain the true average in 93% to 97% of the
cases from 8 classes on, where percentiles of resampled classes contain it in 83% to 89% with 8 classes. There
is no interval for fewer than MIN_CLASSES classes. It measures how much an average depends on the classes
(and trainings), with the gallery as it is.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import stdtrit

MIN_CLASSES = 8
_SYMMETRIC = 1e-6  # skewness below which h(x) = x


class Spread(NamedTuple):
    """Variance, degrees of freedom and skewness of averages."""

    variance: Float64[np.ndarray, "..."]
    freedom: Float64[np.ndarray, "..."]
    skewness: Float64[np.ndarray, "..."]


def class_intervals(
    values: Float64[np.ndarray, "Q F"], labels: Int64[np.ndarray, "Q"], confidence: float
) -> tuple[Float64[np.ndarray, "F"], Float64[np.ndarray, "F"]] | None:
    """Lower and upper ends of the averages of F shares of Q images; None for fewer than MIN_CLASSES classes.
    Ends are within 0 and 1, as shares are."""
    classes, member = np.unique(labels, return_inverse=True)
    if len(classes) < MIN_CLASSES:
        return None
    images = np.bincount(member).astype(np.float64)
    means = np.stack([np.bincount(member, column) for column in values.T]) / images
    weights = images / images.sum()
    ends = interval(means @ weights, spread(influences(means, weights), weights), confidence)
    low, high = (np.clip(end, 0.0, 1.0) for end in ends)
    return low, high


def influences(
    means: Float64[np.ndarray, "... C"], weights: Float64[np.ndarray, "... C"]
) -> Float64[np.ndarray, "... C"]:
    """u_c of the averages of C class means. weights: sum to 1; a class without weight has no influence."""
    centred = means - (weights * means).sum(axis=-1, keepdims=True)
    scale = 1 - 2 * weights + np.square(weights).sum(axis=-1, keepdims=True)
    return weights * centred / np.sqrt(scale)


def spread(of_class: Float64[np.ndarray, "... C"], weights: Float64[np.ndarray, "C"]) -> Spread:
    """v, f and g of averages with the influences `of_class`."""
    classes = int((weights > 0).sum())
    variance = np.square(of_class).sum(axis=-1)
    third = (of_class**3).sum(axis=-1) * classes**2 / ((classes - 1) * (classes - 2))
    skewness = np.divide(third, variance**1.5, out=np.zeros_like(variance), where=variance > 0)
    freedom = np.broadcast_to(1 / np.square(weights).sum() - 1, variance.shape)
    return Spread(variance, freedom, skewness)


def with_seeds(of_classes: Spread, means: Float64[np.ndarray, "... S"]) -> Spread:
    """The spread of averages over classes and S seeds, two or more. means: of each seed."""
    runs = means.shape[-1]
    of_seeds = means.var(axis=-1, ddof=1) / runs
    variance = of_classes.variance + of_seeds
    terms = np.square(of_classes.variance) / of_classes.freedom + np.square(of_seeds) / (runs - 1)
    freedom = np.divide(np.square(variance), terms, out=np.ones_like(variance), where=terms > 0)
    share = np.divide(of_classes.variance, variance, out=np.ones_like(variance), where=variance > 0)
    return Spread(variance, freedom, of_classes.skewness * share**1.5)


def interval(
    averages: Float64[np.ndarray, "..."], of: Spread, confidence: float
) -> tuple[Float64[np.ndarray, "..."], Float64[np.ndarray, "..."]]:
    """Lower and upper ends of averages."""
    deviation, quantile = np.sqrt(of.variance), stdtrit(of.freedom, (1 + confidence) / 2)
    low, high = (averages - deviation * x for x in (quantile, -quantile))
    skewness = np.where(np.abs(of.skewness) < _SYMMETRIC, np.nan, of.skewness)
    of_low, of_high = (
        averages - deviation * 3 / skewness * (np.cbrt(1 + skewness * (x - skewness / 6)) - 1)
        for x in (quantile, -quantile)
    )
    return np.fmin(low, of_low), np.fmax(high, of_high)
