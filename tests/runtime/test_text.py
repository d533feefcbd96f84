"""Aligned tables of plain text."""

import pytest

from unseen.runtime.text import aligned


def test_aligned() -> None:
    rows = [("name", "value", ""), ("a", "1.5", "x"), ("a long name", "-10.25", "")]
    assert list(aligned(rows)) == ["name         value", "a            1.5     x", "a long name  -10.25"]
    assert list(aligned(rows, right=[1])) == [
        "name          value",
        "a               1.5  x",
        "a long name  -10.25",
    ]
    assert list(aligned([])) == []
    with pytest.raises(ValueError, match="argument 2"):
        list(aligned([("a",), ("a", "b")]))
