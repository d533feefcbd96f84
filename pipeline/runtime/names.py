"""File names as text that a terminal and a page can show."""

import unicodedata

_CONTROL = frozenset(("Cc", "Cf", "Zl", "Zp"))  # categories of Unicode: control, direction, line


def printable(name: str) -> str:
    """A file name with the bytes that are not UTF-8 replaced by U+FFFD and control characters by escapes.

    Terminals obey control characters, so that a name can hide or rewrite other lines. A lone surrogate, with
    which Python represents such a byte, cannot be written as UTF-8.
    """
    text = name.encode(errors="surrogateescape").decode(errors="replace")
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _CONTROL:
        return character
    return character.encode("unicode_escape").decode("ascii")
