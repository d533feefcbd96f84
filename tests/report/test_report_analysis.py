"""The analysis numbers as means over seeds."""

import statistics

import pytest

from tests.report.conftest import METHODS
from unseen.report.analysis import means_over_seeds
from unseen.report.dataset import DataSet


def test_deviations_of_several_seeds_equal_those_over_all_splits() -> None:
    """Two seeds with three splits each: exact from the mean and the deviation of each seed."""
    splits = {"l2": [[0.1, 0.4, 0.2], [0.6, 0.5, 0.9]], "cosine": [[0.3, 0.3, 0.3], [0.3, 0.5, 0.1]]}
    rows = [
        {"transfer_map_chance": 0.1, "embedding_density": None if seed else 0.5}
        | {f"transfer_map_{key}": statistics.fmean(values[seed]) for key, values in splits.items()}
        | {f"transfer_map_{key}_std": statistics.pstdev(values[seed]) for key, values in splits.items()}
        for seed in range(2)
    ]
    means = means_over_seeds(rows)
    for key, (first, second) in splits.items():
        assert means[f"transfer_map_{key}"] == pytest.approx(statistics.fmean(first + second))
        assert means[f"transfer_map_{key}_std"] == pytest.approx(statistics.pstdev(first + second))
    assert means["embedding_density"] is None, "a seed lacks it"


def test_methods_keep_the_order_of_the_run(birds: DataSet) -> None:
    assert list(birds.analysis.rows) == list(birds.analysis.first_curves) == list(METHODS)
    assert list(birds.analysis.means) == [
        (method, n) for method in METHODS for n in ("selected", "untrained")
    ]
