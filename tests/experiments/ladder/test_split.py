"""Test classes and folds do not divide groups."""

import pytest

from unseen.experiments.ladder.split import LEAST_CLASSES, split
from unseen.runtime.errors import UserError

CLASSES = [f"{group}{number}" for group in "abcdefghij" for number in range(3)]
GROUPS = {name: name[0] for name in CLASSES}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [None, GROUPS])
def test_every_class_has_one_side_and_groups_are_not_divided(
    groups: dict[str, str] | None, seed: int
) -> None:
    parts = split(CLASSES * 4, 0.5, 4, seed, groups)
    sides = [parts.test, *parts.folds]
    assert sorted(name for side in sides for name in side) == sorted(CLASSES)
    assert len(parts.folds) == 4
    assert len(parts.test) == 15
    sizes = [len(fold) for fold in parts.folds]
    assert max(sizes) - min(sizes) <= (1 if groups is None else 3)
    if groups is not None:
        assert all(len({name[0] for name in side}) * 3 == len(side) for side in sides)


def test_the_seed_decides() -> None:
    assert split(CLASSES, 0.5, 4, 0) == split(CLASSES[::-1], 0.5, 4, 0)
    assert split(CLASSES, 0.5, 4, 0) != split(CLASSES, 0.5, 4, 1)


def test_refuses_too_few_classes_and_groups() -> None:
    with pytest.raises(UserError, match=f"15 classes; a comparison on unseen classes needs {LEAST_CLASSES}"):
        split(CLASSES[:15], 0.5, 4, 0)
    with pytest.raises(UserError, match="The class a0 has no group"):
        split(CLASSES, 0.5, 4, 0, {"b0": "b"})
    with pytest.raises(UserError, match="2 groups; 4 folds and the test classes need 5"):
        split(CLASSES, 0.5, 4, 0, {name: "x" if name[1] == "0" else "y" for name in CLASSES})
