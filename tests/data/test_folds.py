"""Fold boundaries, and the validation block of each model."""

import itertools

import numpy as np
import pytest

from unseen.data.folds import fold_bounds, validation_classes

BOUNDS = {
    "cub": (0, 25, 50, 75, 100),
    "cars": (0, 24, 49, 73, 98),
    "sop": (0, 2829, 5659, 8488, 11318),
    "inshop": (0, 999, 1998, 2997, 3997),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_fold_bounds_equal_the_published_ones(name: str) -> None:
    bounds = BOUNDS[name]
    assert fold_bounds(bounds[-1]) == bounds == tuple(np.linspace(0, bounds[-1], 5).astype(int).tolist())


def test_folds_cover_every_class_once() -> None:
    for classes, folds in itertools.product((4, 5, 23, 98), (2, 3, 4)):
        blocks = [validation_classes(model, classes, folds) for model in range(1, folds + 1)]
        assert sorted(itertools.chain(*blocks)) == list(range(classes))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    assert [validation_classes(model, 98) for model in (1, 2, 3, 4)] == [
        range(73, 98),
        range(49, 73),
        range(24, 49),
        range(24),
    ]


def test_refuses_invalid_folds() -> None:
    for classes, folds in ((3, 4), (10, 1), (0, 4)):
        with pytest.raises(ValueError, match="cannot be divided"):
            fold_bounds(classes, folds)
    for model in (0, 5):
        with pytest.raises(ValueError, match="numbered 1 to 4"):
            validation_classes(model, 98)
