"""Class-bootstrap intervals equal loops over drawn classes and have the nominal coverage."""

import numpy as np
import pytest

from tests.oracles import retrieval as oracle
from unseen.evaluation.statistics.bootstrap import CHUNK, class_intervals


def test_equals_the_definition() -> None:
    """The same draws, pooled by hand. The draws are repeated from the seed, chunk by chunk."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 7, 50) * 3
    values = generator.random((50, 2))
    classes = np.unique(labels)
    replay = np.random.default_rng(5)
    draws: list[list[int]] = []
    while len(draws) < 150:
        sampled = replay.integers(len(classes), size=(min(CHUNK, 150 - len(draws)), len(classes)))
        draws += classes[sampled].tolist()
    low, high = class_intervals(values, labels, 150, 0.9, 5)
    for column in range(2):
        averages = oracle.bootstrap(values[:, column].tolist(), labels.tolist(), draws)
        assert low[column] == pytest.approx(oracle.percentile(averages, 0.05), abs=1e-12)
        assert high[column] == pytest.approx(oracle.percentile(averages, 0.95), abs=1e-12)


def test_same_seed_same_interval() -> None:
    generator = np.random.default_rng(1)
    labels, values = generator.integers(0, 30, 300), generator.random((300, 1))
    interval, repeated, other_seed = (class_intervals(values, labels, 200, 0.95, seed) for seed in (3, 3, 4))
    assert np.array_equal(interval, repeated)
    assert not np.array_equal(interval, other_seed)


def test_one_class_and_equal_values_have_no_width() -> None:
    values = np.array([[0.0], [1.0], [1.0]])
    low, high = class_intervals(values, np.zeros(3, np.int64), 50, 0.95, 0)
    assert low[0] == high[0] == pytest.approx(2 / 3)
    low, high = class_intervals(np.full((9, 1), 0.25), np.arange(9) % 3, 50, 0.95, 0)
    assert low[0] == pytest.approx(0.25)
    assert high[0] == pytest.approx(0.25)


def test_classes_not_images_are_drawn() -> None:
    """Images of a class have equal values. Ten thousand images of twenty classes have the information of
    twenty draws; an interval over images would be far too narrow."""
    generator = np.random.default_rng(2)
    of_class = (generator.random(20) < 0.5).astype(np.float64)
    labels = np.repeat(np.arange(20), 500)
    low, high = class_intervals(of_class[labels][:, None], labels, 1000, 0.95, 0)
    expected = 2 * 1.96 * np.sqrt(of_class.mean() * (1 - of_class.mean()) / 20)
    assert high[0] - low[0] == pytest.approx(expected, rel=0.2)


def test_interval_has_the_nominal_coverage() -> None:
    """200 data sets of 60 classes of unequal size, with class means around 0.6: about 180 of the 90%
    intervals should contain 0.6."""
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(200):
        sizes = generator.integers(2, 12, 60)
        labels = np.repeat(np.arange(60), sizes)
        means = 0.6 + 0.15 * generator.standard_normal(60)
        values = means[labels] + 0.2 * generator.standard_normal(len(labels))
        low, high = class_intervals(values[:, None], labels, 200, 0.9, trial)
        covered += bool(low[0] <= 0.6 <= high[0])
    assert 163 <= covered <= 195  # the percentile interval is a little narrow; binomial spread is 4.2
