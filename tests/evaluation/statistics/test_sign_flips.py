"""Sign-flip tests equal scipy, and drawn sign vectors approximate all of them."""

import numpy as np
import pytest
import scipy.stats

from unseen.evaluation.statistics.sign_flips import sign_flip_tests


def sign_flip_test(sums: np.ndarray, permutations: int, seed: int) -> tuple[float, bool]:
    columns = np.stack([np.zeros(len(sums)), sums], axis=1)
    p_values, exact = sign_flip_tests(columns, [(0, 1)], permutations, seed)
    return float(p_values[0]), exact


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


def test_equal_methods_and_one_class_are_never_distinct() -> None:
    """Sums that differ by rounding alone count as equal."""
    sums = np.random.default_rng(4).random((30, 1))
    p_values, _ = sign_flip_tests(np.hstack([sums, sums + 1e-17]), [(0, 1)], 200, 0)
    assert p_values[0] == 1
    assert sign_flip_test(np.array([0.4]), 1000, 0) == (1, True)
