"""The t interval over seeds equals scipy's and has the nominal coverage."""

import numpy as np
import pytest
import scipy.stats

from unseen.evaluation.statistics.seeds import over_seeds


def test_interval_over_seeds_equals_students_t() -> None:
    for runs in (2, 3, 10):
        values = np.random.default_rng(runs).random(runs)
        interval = over_seeds(values, 0.9)
        scipy_interval = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
        assert (interval.low, interval.high) == pytest.approx(
            (scipy_interval.low, scipy_interval.high), abs=1e-12
        )
        assert (interval.mean, interval.deviation) == pytest.approx((values.mean(), values.std(ddof=1)))


def test_one_seed_has_no_interval() -> None:
    with pytest.raises(ValueError, match="two runs or more"):
        over_seeds(np.array([0.5]), 0.95)
    equal_seeds = over_seeds(np.array([0.5, 0.5, 0.5]), 0.95)
    assert (equal_seeds.deviation, equal_seeds.low, equal_seeds.high) == (0, 0.5, 0.5)


def test_interval_over_seeds_has_the_nominal_coverage() -> None:
    generator = np.random.default_rng(0)
    intervals = [over_seeds(generator.normal(0.6, 0.02, 4), 0.9) for _ in range(1000)]
    assert 860 <= sum(average.low <= 0.6 <= average.high for average in intervals) <= 940
