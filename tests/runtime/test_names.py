"""File names as text."""

import pytest

from unseen.runtime.names import printable, text_cell


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("schön 1.jpg", "schön 1.jpg"),
        ("日本.png", "日本.png"),
        ("a\x1b[2Jb\n\x00", "a\\x1b[2Jb\\n\\x00"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\udcff.png", "\ufffd.png"),
        ("\ud800 1.png", "\ufffd 1.png"),
    ],
)
def test_control_characters_are_escaped_and_other_bytes_replaced(name: str, shown: str) -> None:
    assert printable(name) == shown


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-a", "@sum(1)", "\t=1", "\r=1"])
def test_a_formula_in_a_cell_is_text(text: str) -> None:
    assert text_cell(text) == f"'{text}"
    assert text_cell(f"a{text}") == f"a{text}"
