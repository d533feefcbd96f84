"""File names as text that a terminal and a page can show."""

import sys
import unicodedata

_CONTROL = frozenset(("Cc", "Cf", "Zl", "Zp"))  # categories of Unicode: control, direction, line


def printable(name: str) -> str:
    """A file name or line with lone surrogates replaced by U+FFFD and control characters by escapes.

    Terminals obey control characters, so that a name can hide or rewrite other lines. A lone surrogate, with
    which Python represents a byte that is not UTF-8, cannot be written as UTF-8.
    """
    if name.isprintable():
        return name
    return "".join(_escaped(character) for character in name)


def say(text: str) -> None:
    """Writes the lines of a message to stderr, each printable."""
    sys.stderr.write("".join(f"{printable(line)}\n" for line in text.split("\n")))
    sys.stderr.flush()


def text_cell(text: str) -> str:
    """Text for a cell of a CSV file. A spreadsheet computes a cell that starts as a formula; an apostrophe
    before it makes it text (https://owasp.org/www-community/attacks/CSV_Injection)."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _escaped(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Cs":  # surrogate
        return "\ufffd"
    if category not in _CONTROL:
        return character
    return character.encode("unicode_escape").decode("ascii")
