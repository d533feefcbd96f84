"""FNMR at FMR: equal to all pairs in float64, and to a data set that is resampled class by class."""

import tracemalloc

import numpy as np
import pytest

from tests.oracles import generalization as oracle
from unseen.evaluation.analysis import verification
from unseen.evaluation.analysis.verification import FINE, Intervals, operating_points, resampled_weights

NO_INTERVAL = Intervals(1, 0.95, 0)


def sample(classes: int, size: int, noise: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Classes of 1 to 2 `size` images, in random order, with labels that are not consecutive."""
    random = np.random.default_rng(seed)
    label = random.permutation(np.repeat(np.arange(classes), random.integers(1, 2 * size, classes)))
    x = random.normal(size=(classes, 8))[label] + noise * random.normal(size=(len(label), 8))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), 7 * label + 2


def errors_at(same: np.ndarray, different: np.ndarray, rate: float) -> tuple[float, float]:
    """FMR and FNMR just above the largest similarities that the rate allows."""
    allowed = int(rate * len(different) + 1e-9)
    rejected = np.sort(different)[::-1][allowed]
    return float((different > rejected).mean()), float((same <= rejected).mean())


@pytest.mark.parametrize("groups", [256, 5])
@pytest.mark.parametrize("block", [2**21, 50])
def test_errors_equal_those_of_all_pairs(groups: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "BLOCK", block)
    monkeypatch.setattr(verification, "GROUPS", groups)
    embeddings, labels = sample(classes=25, size=8, noise=0.7)
    same, different = map(np.array, oracle.pair_similarities(embeddings.astype(np.float64), labels))
    points = operating_points(embeddings, labels, NO_INTERVAL)
    assert [point.rate for point in points] == [0.1, 0.01, 0.001]
    for point in points:
        fmr, fnmr = errors_at(same, different, point.rate)
        assert point.fmr == pytest.approx(fmr, abs=2 / len(different))  # values within one of FINE bins
        assert point.fnmr == pytest.approx(fnmr, abs=1.5 / len(same))
        assert point.fmr <= point.rate
        assert (different >= point.threshold).mean() == pytest.approx(point.fmr, abs=1e-9)
        assert (same < point.threshold).mean() == pytest.approx(point.fnmr, abs=1e-9)
        assert (different >= point.threshold - 2 / FINE).mean() > point.rate, "a lower threshold fits"
    assert 0.02 < points[0].fnmr < points[1].fnmr < points[2].fnmr < 0.98


@pytest.mark.parametrize("groups", [12, 5])
def test_the_interval_is_that_of_resampled_data_sets(groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of a group of classes contains the pairs of its classes once."""
    monkeypatch.setattr(verification, "GROUPS", groups)
    embeddings, labels = sample(classes=12, size=6, noise=0.7, seed=1)
    point = operating_points(embeddings, labels, Intervals(200, 0.9, 3))[0]
    group_of = np.random.default_rng(0).permutation(12) % groups if groups < 12 else np.arange(12)
    group_of_row = group_of[np.unique(labels, return_inverse=True)[1]]
    resampled = []
    for counts in resampled_weights(groups, Intervals(200, 0.9, 3)).astype(int):
        rows = [np.flatnonzero(group_of_row == group) for group in np.repeat(np.arange(groups), counts)]
        copy = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
        chosen = np.concatenate(rows)
        label, group, x = labels[chosen], group_of_row[chosen], embeddings[chosen].astype(np.float64)
        upper = np.triu(np.ones((len(x), len(x)), bool), 1)
        s = x @ x.T
        one_copy, one_class = copy[:, None] == copy, label[:, None] == label
        same = s[upper & one_copy & one_class]
        different = s[upper & ~one_class & (one_copy | (group[:, None] != group))]
        resampled.append(errors_at(same, different, 0.1)[1])
    low, high = np.quantile(resampled, [0.05, 0.95])
    assert (point.low, point.high) == pytest.approx((low, high), abs=0.01)
    assert point.low < point.fnmr < point.high


def test_random_groups_have_intervals_as_wide_as_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, labels = sample(classes=120, size=3, noise=0.7, seed=2)
    of_classes = operating_points(embeddings, labels, Intervals(400, 0.95, 0))[1]
    monkeypatch.setattr(verification, "GROUPS", 60)
    of_groups = operating_points(embeddings, labels, Intervals(400, 0.95, 0))[1]
    assert of_groups.fnmr == of_classes.fnmr
    assert of_groups.low < of_groups.fnmr < of_groups.high
    ratio = (of_groups.high - of_groups.low) / (of_classes.high - of_classes.low)
    assert 0.7 < ratio < 1.4


def test_separated_classes_have_no_error_and_equal_ones_as_many_as_matches() -> None:
    label = np.repeat(np.arange(20), 5)
    points = operating_points(np.eye(20, dtype=np.float32)[label], label, Intervals(20, 0.95, 0))
    assert [(point.fmr, point.fnmr, point.low, point.high) for point in points] == [(0, 0, 0, 0)] * 3
    random = np.random.default_rng(0).normal(size=(400, 3)).astype(np.float32)
    same_distribution = operating_points(random, np.repeat(np.arange(80), 5), NO_INTERVAL)
    assert same_distribution[0].fnmr == pytest.approx(0.9, abs=0.03)


def test_rates_below_one_pair_and_sets_without_both_kinds_of_pairs_are_omitted() -> None:
    embeddings, _ = sample(classes=10, size=3, noise=0.5)
    x = embeddings[:8]
    assert [each.rate for each in operating_points(x, np.arange(8) // 2, NO_INTERVAL)] == [0.1]  # 24 pairs
    assert operating_points(x, np.zeros(8, int), NO_INTERVAL) == []
    assert operating_points(x, np.arange(8), NO_INTERVAL) == []


def test_memory_does_not_grow_with_the_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "CELLS", 2**16)
    embeddings, labels = sample(classes=1200, size=8, noise=0.7)
    assert len(labels) ** 2 * 4 > 300 * 2**20, "bytes of all similarities"
    tracemalloc.start()
    operating_points(embeddings, labels, NO_INTERVAL)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 * 2**20
