"""Trades: valid batches for any counts, close to uniform, in time that grows with the places."""

import numpy as np
import pytest

from unseen.data.trades import trade


@pytest.mark.parametrize(
    ("counts", "classes", "steps"),
    [
        ([3, 3, 3, 3], 4, 3),  # every class in every batch
        ([5, 1, 1, 1, 1, 1], 2, 5),  # one class in every batch
        ([2, 2, 1, 1, 0, 3], 3, 3),
        ([1] * 7, 7, 1),
        ([4] * 30, 8, 15),
    ],
)
def test_batches_have_distinct_classes_with_their_counts(counts: list[int], classes: int, steps: int) -> None:
    for seed in range(20):
        batches = trade(np.random.default_rng(seed), np.array(counts), classes, steps)
        assert batches.shape == (steps, classes)
        assert all(len(set(batch)) == classes for batch in batches.tolist())
        assert np.bincount(batches.ravel(), minlength=len(counts)).tolist() == counts


@pytest.mark.slow
def test_all_pairs_of_classes_are_equally_frequent() -> None:
    """Equal counts: by symmetry every pair of the 20 classes has the same expected number of batches."""
    together = np.zeros((20, 20))
    for seed in range(300):
        for batch in trade(np.random.default_rng(seed), np.full(20, 6), 4, 30):
            together[np.ix_(batch, batch)] += 1
    pairs = together[~np.eye(20, dtype=bool)]
    expected = 300 * 30 * 4 * 3 / (20 * 19)
    assert pairs.mean() == pytest.approx(expected)
    assert np.abs(pairs - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.slow
def test_positions_of_a_class_are_uniform() -> None:
    """The start places a class in consecutive batches; after the trades its steps are independent of each
    other."""
    steps = 64
    distances = []
    for seed in range(200):
        batches = trade(np.random.default_rng(seed), np.full(32, 8), 4, steps)
        distances += np.diff(np.flatnonzero((batches == 5).any(axis=1))).tolist()
    adjacent = np.mean(np.array(distances) == 1)
    assert adjacent == pytest.approx(
        8 / steps, abs=0.03
    )  # of distinct uniform steps: about (r - 1) / (T - 1)
