"""Paired tests: scipy, exact enumerations, coverage and error rates in small simulations."""

import numpy as np
import pytest
import scipy.stats

from pipeline.evaluation.statistics.bootstrap import class_intervals
from pipeline.evaluation.statistics.comparison import compare, compare_pairs, sign_flip_tests


def queries(
    classes: int, effect: float, seed: int, runs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two methods on queries that are alike within a class: the difference has a class part (0.1) and a query
    part (0.2)."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), generator.integers(2, 9, classes))
    level = 0.5 + 0.2 * generator.standard_normal(classes)[labels]
    first = level + 0.2 * generator.standard_normal((runs, len(labels)))
    second = (
        level
        + effect
        + 0.1 * generator.standard_normal(classes)[labels]
        + 0.2 * generator.standard_normal((runs, len(labels)))
    )
    return first, second, labels


def sign_flip_test(sums: np.ndarray, permutations: int, seed: int) -> tuple[float, bool]:
    columns = np.stack([np.zeros(len(sums)), sums], axis=1)
    p_values, exact = sign_flip_tests(columns, [(0, 1)], permutations, seed)
    return float(p_values[0]), exact


def test_difference_is_second_less_first() -> None:
    first, second, labels = queries(40, 0.3, 0)
    better = compare(first, second, labels, 500, 0.95, 0)
    assert 0 < better.low < better.difference < better.high
    assert (
        better.difference
        == pytest.approx(better.second - better.first)
        == pytest.approx((second - first).mean())
    )
    assert better.p_value == pytest.approx(1 / 501)
    worse = compare(second, first, labels, 500, 0.95, 0)
    assert (worse.difference, worse.p_value) == (-better.difference, better.p_value)
    assert (worse.low, worse.high) == pytest.approx((-better.high, -better.low))
    assert (better.queries, better.classes, better.exact) == (len(labels), 40, False)


def test_pairing_sees_what_two_intervals_cannot() -> None:
    """Classes differ far more than methods: the intervals of the two overlap, that of the difference is clear
    of zero."""
    generator = np.random.default_rng(1)
    labels = np.repeat(np.arange(50), 6)
    first = np.clip(generator.random(50)[labels] + 0.05 * generator.standard_normal(300), 0, 1)[None]
    second = first + 0.03 + 0.03 * generator.standard_normal(300)
    (_, high), (low, _) = (
        class_intervals(x.mean(axis=0)[:, None], labels, 500, 0.95, 0) for x in (first, second)
    )
    assert high[0] > low[0]
    together = compare(first, second, labels, 500, 0.95, 0)
    assert together.low > 0
    assert together.p_value < 0.01


def test_few_classes_are_counted_exactly() -> None:
    """Against scipy's permutation test of paired samples, whose samples are the sums of the classes."""
    generator = np.random.default_rng(2)
    for classes in (2, 5, 8):
        sums = generator.standard_normal(classes) + 0.5
        p_value, exact = sign_flip_test(sums, 1000, 0)
        theirs = scipy.stats.permutation_test(
            (sums, np.zeros(classes)),
            lambda a, b, axis: np.abs((a - b).sum(axis=axis)),
            permutation_type="samples",
            vectorized=True,
            alternative="greater",
            n_resamples=np.inf,
        )
        assert exact
        assert p_value == pytest.approx(theirs.pvalue, abs=1e-12)


def test_drawn_flips_come_near_the_exact_count() -> None:
    sums = np.random.default_rng(3).standard_normal(12) + 0.4
    exact, counted = sign_flip_test(sums, 4096, 0)
    drawn, drawn_counted = sign_flip_test(sums, 4000, 0)
    assert (counted, drawn_counted) == (True, False)
    assert drawn == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))
    assert sign_flip_test(sums, 4000, 0) == (drawn, False)


def test_no_difference_at_all() -> None:
    first, _, labels = queries(30, 0, 4)
    same = compare(first, first, labels, 200, 0.95, 0)
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)


def test_one_class_proves_nothing() -> None:
    first, second, _ = queries(20, 0.4, 5)
    assert compare(first, second, np.zeros(first.shape[1], np.int64), 1000, 0.95, 0).p_value == 1


def test_false_alarms_are_as_rare_as_announced_and_intervals_cover() -> None:
    """600 comparisons of methods that are equal over all classes: p <= 0.1 in about 60, the 90% interval
    holds 0 in nearly 540. A test that takes the queries for independent raises the alarm nearly twice as
    often."""
    alarms = covered = naive = 0
    for trial in range(600):
        first, second, labels = queries(40, 0, 1000 + trial)
        result = compare(first, second, labels, 199, 0.9, trial)
        alarms += result.p_value <= 0.1
        covered += result.low <= 0 <= result.high
        naive += scipy.stats.ttest_rel(second[0], first[0]).pvalue <= 0.1
    assert 35 <= alarms <= 85  # binomial spread 7.3
    assert 505 <= covered <= 560  # percentiles are a little narrow: 0.88 in a long run
    assert naive > 1.4 * alarms


def test_a_real_difference_is_found() -> None:
    found = sum(
        compare(*queries(40, 0.06, 300 + trial), 199, 0.9, trial).p_value <= 0.05 for trial in range(40)
    )
    assert found >= 25


def test_runs_are_averaged_and_may_differ_in_number() -> None:
    first, second, labels = queries(25, 0.1, 6, runs=3)
    ours = compare(first, second[:2], labels, 300, 0.95, 1)
    by_hand = compare(first.mean(axis=0)[None], second[:2].mean(axis=0)[None], labels, 300, 0.95, 1)
    assert ours == by_hand


def test_lone_queries_are_left_out_and_must_be_the_same() -> None:
    first, second, labels = queries(20, 0.1, 7, runs=2)
    lone = np.append(labels, 99)
    with_lone = [np.concatenate([x, np.full((2, 1), np.nan)], axis=1) for x in (first, second)]
    assert compare(with_lone[0], with_lone[1], lone, 200, 0.95, 0) == compare(
        first, second, labels, 200, 0.95, 0
    )
    with pytest.raises(ValueError, match="methods were not scored on the same queries"):
        compare(with_lone[0], np.nan_to_num(with_lone[1]), lone, 200, 0.95, 0)
    torn = with_lone[0].copy()
    torn[0, 3] = np.nan
    with pytest.raises(ValueError, match="runs were not scored on the same queries"):
        compare(torn, with_lone[1], lone, 200, 0.95, 0)


def test_all_pairs_together_are_the_pairs_one_by_one() -> None:
    """Five methods of two runs each, on many classes and on few, the last method equal to the second."""
    for classes in (9, 60):
        labels = queries(classes, 0, 0)[2]
        methods = [queries(classes, 0.02 * method, 0, runs=2)[1] for method in range(4)]
        methods.append(methods[1].copy())
        pairs = [(first, second) for first in range(5) for second in range(5) if first != second]
        together = compare_pairs(methods, pairs, labels, 700, 700, 0.9, 3)
        for (first, second), ours in zip(pairs, together, strict=True):
            alone = compare(methods[first], methods[second], labels, 700, 0.9, 3)
            assert (ours.p_value, ours.exact) == (alone.p_value, alone.exact)
            assert ours == pytest.approx(alone, abs=1e-12)
        assert together[pairs.index((1, 4))].p_value == 1


def test_intervals_and_p_values_may_have_different_numbers_of_draws() -> None:
    first, second, labels = queries(40, 0.02, 9)
    (ours,) = compare_pairs([first, second], [(0, 1)], labels, 200, 900, 0.95, 0)
    few, many = compare(first, second, labels, 200, 0.95, 0), compare(first, second, labels, 900, 0.95, 0)
    assert (ours.low, ours.high, ours.p_value) == (few.low, few.high, many.p_value)
    assert many.p_value != few.p_value
