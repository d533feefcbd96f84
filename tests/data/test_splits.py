"""Held-out classes, the published folds, and groups of classes that are not divided."""

import itertools

import numpy as np
import pytest

from unseen.data.splits import LEAST_CLASSES, fold_bounds, grouped, held_out, validation_classes
from unseen.runtime.errors import UserError

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
        with pytest.raises(UserError, match="cannot be divided"):
            fold_bounds(classes, folds)


NAMES = tuple(f"class {number}" for number in range(81))


def test_order_by_name_holds_out_the_last_classes() -> None:
    assert held_out(NAMES, 0.5, "name", 0) == set(sorted(NAMES)[-41:])


def test_random_order_depends_on_the_seed_and_not_on_the_listing() -> None:
    first = held_out(NAMES, 0.5, "random", 0)
    assert len(first) == 41
    assert first == held_out(NAMES[::-1], 0.5, "random", 0)
    assert first != held_out(NAMES, 0.5, "random", 1)
    # The choice must never change, because published results depend on it.
    assert held_out(["ant", "bee", "cow", "dog", "elk"], 0.4, "random", 0) == {"dog", "elk"}


def test_a_new_class_changes_the_split_of_at_most_one_other() -> None:
    before = held_out(NAMES, 0.5, "random", 0)
    after = held_out([*NAMES, "new class"], 0.5, "random", 0)
    assert len((before ^ after) - {"new class"}) <= 1


CLASSES = [f"{group}{number}" for group in "abcdefghij" for number in range(3)]
GROUPS = {name: name[0] for name in CLASSES}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_every_class_has_one_side_and_groups_are_not_divided(
    groups: dict[str, str] | None, seed: int
) -> None:
    parts = grouped(CLASSES * 4, 0.5, 4, seed, groups)
    sides = [parts.test, *parts.folds]
    assert sorted(name for side in sides for name in side) == sorted(CLASSES)
    assert len(parts.folds) == 4
    assert len(parts.test) == 15
    sizes = [len(fold) for fold in parts.folds]
    assert max(sizes) - min(sizes) <= (1 if groups is None else 3)
    if groups is not None:
        assert all(len({name[0] for name in side}) * 3 == len(side) for side in sides)


def test_the_seed_decides() -> None:
    assert grouped(CLASSES, 0.5, 4, 0) == grouped(CLASSES[::-1], 0.5, 4, 0)
    assert grouped(CLASSES, 0.5, 4, 0) != grouped(CLASSES, 0.5, 4, 1)


def test_refuses_too_few_classes_and_groups() -> None:
    with pytest.raises(UserError, match=f"15 classes; a comparison on unseen classes needs {LEAST_CLASSES}"):
        grouped(CLASSES[:15], 0.5, 4, 0)
    with pytest.raises(UserError, match="The class a0 has no group"):
        grouped(CLASSES, 0.5, 4, 0, {"b0": "b"})
    with pytest.raises(UserError, match="2 groups; 4 folds and the test classes need 5"):
        grouped(CLASSES, 0.5, 4, 0, {name: "x" if name[1] == "0" else "y" for name in CLASSES})
