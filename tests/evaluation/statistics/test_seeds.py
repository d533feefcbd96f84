"""The t interval over seeds: against scipy, and its coverage."""

import numpy as np
import pytest
import scipy.stats

from pipeline.evaluation.statistics.seeds import over_seeds


def test_interval_over_seeds_is_students() -> None:
    for runs in (2, 3, 10):
        values = np.random.default_rng(runs).random(runs)
        ours = over_seeds(values, 0.9)
        theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
        assert (ours.mean, ours.deviation) == pytest.approx((values.mean(), values.std(ddof=1)))


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two runs or more"):
        over_seeds(np.array([0.5]), 0.95)
    same = over_seeds(np.array([0.5, 0.5, 0.5]), 0.95)
    assert (same.deviation, same.low, same.high) == (0, 0.5, 0.5)


def test_interval_over_seeds_covers() -> None:
    generator = np.random.default_rng(0)
    intervals = [over_seeds(generator.normal(0.6, 0.02, 4), 0.9) for _ in range(1000)]
    assert 860 <= sum(average.low <= 0.6 <= average.high for average in intervals) <= 940
