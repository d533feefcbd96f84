"""Intervals over classes equal their formulas and have the nominal coverage."""

import numpy as np
import pytest

from tests.oracles import comparison as oracle
from unseen.evaluation.statistics.intervals import class_intervals


def test_equals_the_definition() -> None:
    generator = np.random.default_rng(0)
    labels = np.append(generator.integers(0, 9, 60) * 3, np.arange(9) * 3)
    values = 0.4 + 0.2 * generator.random((69, 2))
    ends = class_intervals(values, labels, 0.9)
    assert ends is not None
    classes = np.unique(labels).tolist()
    images = [int((labels == label).sum()) for label in classes]
    for column in range(2):
        means = [float(values[labels == label, column].mean()) for label in classes]
        expected = oracle.interval_of_classes(means, images, [], 0.9)
        assert [float(end[column]) for end in ends] == pytest.approx(expected)


def test_few_classes_have_none_and_equal_values_no_width() -> None:
    labels = np.repeat(np.arange(8), 3)
    assert class_intervals(np.ones((21, 1)), labels[:21], 0.95) is None
    ends = class_intervals(np.full((24, 1), 0.25), labels, 0.95)
    assert ends is not None
    assert [end.tolist() for end in ends] == [[0.25], [0.25]]


def test_the_ends_of_a_share_are_shares() -> None:
    """One of ten classes has no hit."""
    values = np.repeat(np.arange(10) > 0, 4).astype(np.float64)[:, None]
    high, low = (class_intervals(x, np.repeat(np.arange(10), 4), 0.95) for x in (values, 1 - values))
    assert high is not None
    assert low is not None
    assert 0 < high[0][0] < 0.9 < high[1][0] == 1
    assert 0 == low[0][0] < 0.1 < low[1][0] < 1


def test_classes_not_images_are_independent() -> None:
    """Images of a class have equal values. Ten thousand images of twenty classes have the information of
    twenty; an interval over images would be far too narrow."""
    generator = np.random.default_rng(2)
    of_class = (generator.random(20) < 0.5).astype(np.float64)
    labels = np.repeat(np.arange(20), 500)
    ends = class_intervals(of_class[labels][:, None], labels, 0.95)
    assert ends is not None
    expected = 2 * 2.09 * np.sqrt(of_class.mean() * (1 - of_class.mean()) / 19)
    assert ends[1][0] - ends[0][0] == pytest.approx(expected, rel=0.05)


def test_the_coverage_is_nominal() -> None:
    """400 data sets of 12 classes of unequal size, with class means around 0.6: about 360 of the 90%
    intervals contain 0.6."""
    generator, covered = np.random.default_rng(3), 0
    for _ in range(400):
        labels = np.repeat(np.arange(12), generator.integers(2, 12, 12))
        means = 0.6 + 0.1 * generator.standard_normal(12)
        values = means[labels] + 0.1 * generator.standard_normal(len(labels))
        ends = class_intervals(values[:, None], labels, 0.9)
        assert ends is not None
        covered += bool(ends[0][0] <= 0.6 <= ends[1][0])
    assert 342 <= covered <= 382  # binomial spread 6
