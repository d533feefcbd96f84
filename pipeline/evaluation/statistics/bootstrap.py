"""Percentile intervals of averages over queries, by resampling classes.

Queries of one class share their neighbours and so are dependent; classes are independent. A resample draws C
classes with replacement. With w_c the number of draws of class c, and S_c the sum of a metric over its n_c
scored queries,

    average* = sum_c w_c S_c / sum_c w_c n_c

The interval contains the middle `confidence` of the resampled averages (Efron and Tibshirani, An Introduction
to the Bootstrap, ch. 13). It measures how much the average depends on the classes of the split. It does not
measure how much the average depends on the training seed (seeds.py).
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float64, Int64

CHUNK = 64  # resamples whose class counts are in memory at a time


def class_intervals(
    values: Float64[np.ndarray, "Q F"],
    labels: Int64[np.ndarray, "Q"],
    resamples: int,
    confidence: float,
    seed: int,
) -> tuple[Float64[np.ndarray, "F"], Float64[np.ndarray, "F"]]:
    """Lower and upper ends for F metrics of Q scored queries."""
    tail = (1 - confidence) / 2
    averages = resampled_averages(values, labels, resamples, seed)
    low, high = np.quantile(averages, [tail, 1 - tail], axis=0)
    return low, high


def resampled_averages(
    values: Float64[np.ndarray, "Q F"], labels: Int64[np.ndarray, "Q"], resamples: int, seed: int
) -> Float64[np.ndarray, "K F"]:
    """average* of F metrics in K resamples.

    Equal seeds and classes give equal resamples, so averages of different metrics and methods are paired.
    """
    classes, member = np.unique(labels, return_inverse=True)
    sums = np.stack([np.bincount(member, column, len(classes)) for column in values.T], axis=1)
    sizes = np.bincount(member, minlength=len(classes)).astype(np.float64)
    return np.concatenate(
        [
            (weights @ sums) / (weights @ sizes)[:, None]
            for weights in resampled_weights(len(classes), resamples, seed)
        ]
    )


def resampled_weights(classes: int, resamples: int, seed: int) -> Iterator[Float64[np.ndarray, "k C"]]:
    """Yields w_c of all K resamples, at most CHUNK resamples at a time."""
    random = np.random.default_rng(seed)
    for start in range(0, resamples, CHUNK):
        drawn = random.integers(classes, size=(min(CHUNK, resamples - start), classes))
        yield np.stack([np.bincount(row, minlength=classes) for row in drawn]).astype(np.float64)
