"""Holm's adjustment equals the step-down procedure."""

import numpy as np
import pytest

from tests.oracles import comparison as oracle
from unseen.evaluation.statistics.better import holm


def test_holm_equals_the_step_down_procedure() -> None:
    generator = np.random.default_rng(8)
    for _ in range(50):
        p_values = np.round(generator.random(generator.integers(1, 8)) ** 3, 2)  # ties among them
        adjusted = holm(p_values)
        for alpha in (0.001, 0.01, 0.05, 0.1, 0.3, 0.9):
            assert (adjusted <= alpha + 1e-12).tolist() == oracle.holm_rejects(
                p_values.tolist(), alpha + 1e-12
            )
        assert (adjusted >= p_values).all()
        assert (adjusted <= 1).all()


def test_holm_keeps_a_single_p_value_and_increases_several() -> None:
    assert holm(np.array([0.03])).tolist() == [0.03]
    assert holm(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([])).tolist() == []
