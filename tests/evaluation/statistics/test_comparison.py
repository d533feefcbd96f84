"""Paired tests equal scipy and exact enumerations, and have the nominal coverage and error rates in small
simulations."""

import numpy as np
import pytest
import scipy.stats

from unseen.evaluation.statistics.bootstrap import class_intervals
from unseen.evaluation.statistics.comparison import compare, compare_pairs
from unseen.evaluation.statistics.sign_flips import sign_flip_tests


def queries(
    classes: int, effect: float, seed: int, runs: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two methods on queries that are similar within a class: the difference has a class part (0.1) and a
    query part (0.2)."""
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


def test_difference_is_second_minus_first() -> None:
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


def test_pairing_separates_methods_with_overlapping_intervals() -> None:
    """Classes differ far more than methods. The intervals of the two methods overlap; that of the difference
    excludes zero."""
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


def test_few_classes_are_enumerated() -> None:
    """The reference is scipy's permutation test of paired samples; the samples are the sums of the
    classes."""
    generator = np.random.default_rng(2)
    for classes in (2, 5, 8):
        sums = generator.standard_normal(classes) + 0.5
        p_value, exact = sign_flip_test(sums, 1000, 0)
        scipy_test = scipy.stats.permutation_test(
            (sums, np.zeros(classes)),
            lambda a, b, axis: np.abs((a - b).sum(axis=axis)),
            permutation_type="samples",
            vectorized=True,
            alternative="greater",
            n_resamples=np.inf,
        )
        assert exact
        assert p_value == pytest.approx(scipy_test.pvalue, abs=1e-12)


def test_drawn_flips_approximate_the_enumeration() -> None:
    sums = np.random.default_rng(3).standard_normal(12) + 0.4
    exact, counted = sign_flip_test(sums, 4096, 0)
    drawn_p_value, drawn_is_exact = sign_flip_test(sums, 4000, 0)
    assert (counted, drawn_is_exact) == (True, False)
    assert drawn_p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000))
    assert sign_flip_test(sums, 4000, 0) == (drawn_p_value, False)


def test_equal_methods_have_no_difference() -> None:
    first, _, labels = queries(30, 0, 4)
    comparison = compare(first, first, labels, 200, 0.95, 0)
    assert (comparison.difference, comparison.low, comparison.high, comparison.p_value) == (0, 0, 0, 1)


def test_one_class_is_never_significant() -> None:
    first, second, _ = queries(20, 0.4, 5)
    assert compare(first, second, np.zeros(first.shape[1], np.int64), 1000, 0.95, 0).p_value == 1


@pytest.mark.slow
def test_error_rate_and_coverage_are_nominal() -> None:
    """600 comparisons of methods that are equal over all classes: about 60 have p <= 0.1, and nearly 540 of
    the 90% intervals contain 0. A test that assumes independent queries has nearly twice as many false
    positives."""
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


def test_detects_a_difference() -> None:
    detections = sum(
        compare(*queries(40, 0.06, 300 + trial), 199, 0.9, trial).p_value <= 0.05 for trial in range(40)
    )
    assert detections >= 25


def test_runs_are_averaged_and_may_differ_in_number() -> None:
    first, second, labels = queries(25, 0.1, 6, runs=3)
    comparison = compare(first, second[:2], labels, 300, 0.95, 1)
    by_hand = compare(first.mean(axis=0)[None], second[:2].mean(axis=0)[None], labels, 300, 0.95, 1)
    assert comparison == by_hand


def test_lone_queries_are_excluded_and_must_be_equal() -> None:
    first, second, labels = queries(20, 0.1, 7, runs=2)
    labels_with_lone = np.append(labels, 99)
    with_lone = [np.concatenate([x, np.full((2, 1), np.nan)], axis=1) for x in (first, second)]
    assert compare(with_lone[0], with_lone[1], labels_with_lone, 200, 0.95, 0) == compare(
        first, second, labels, 200, 0.95, 0
    )
    with pytest.raises(ValueError, match="methods were not scored on the same queries"):
        compare(with_lone[0], np.nan_to_num(with_lone[1]), labels_with_lone, 200, 0.95, 0)
    torn = with_lone[0].copy()
    torn[0, 3] = np.nan
    with pytest.raises(ValueError, match="runs were not scored on the same queries"):
        compare(torn, with_lone[1], labels_with_lone, 200, 0.95, 0)


def test_all_pairs_together_equal_single_comparisons() -> None:
    """Five methods of two runs each, on many and on few classes. The last method equals the second."""
    for classes in (9, 60):
        labels = queries(classes, 0, 0)[2]
        methods = [queries(classes, 0.02 * method, 0, runs=2)[1] for method in range(4)]
        methods.append(methods[1].copy())
        pairs = [(first, second) for first in range(5) for second in range(5) if first != second]
        together = compare_pairs(methods, pairs, labels, 700, 700, 0.9, 3)
        for (first, second), comparison in zip(pairs, together, strict=True):
            expected = compare(methods[first], methods[second], labels, 700, 0.9, 3)
            assert (comparison.p_value, comparison.exact) == (expected.p_value, expected.exact)
            assert comparison == pytest.approx(expected, abs=1e-12)
        assert together[pairs.index((1, 4))].p_value == 1


def test_intervals_and_p_values_may_have_different_numbers_of_draws() -> None:
    first, second, labels = queries(40, 0.02, 9)
    (mixed,) = compare_pairs([first, second], [(0, 1)], labels, 200, 900, 0.95, 0)
    few_draws, many_draws = (
        compare(first, second, labels, 200, 0.95, 0),
        compare(first, second, labels, 900, 0.95, 0),
    )
    assert (mixed.low, mixed.high, mixed.p_value) == (few_draws.low, few_draws.high, many_draws.p_value)
    assert many_draws.p_value != few_draws.p_value
