"""Names of data sets and methods: they become names of files, stages and keys of params.yaml."""

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_KEYWORDS = {
    "true",
    "false",
    "null",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
}  # YAML 1.1 reads them as other values


def checked_name(name: str) -> str:
    """The name itself. Raises ValueError for a name that a file, a stage of DVC or YAML would not keep as it
    is."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name starts with a letter and contains only letters, digits, `_` and `-`")
    if name.lower() in _KEYWORDS:
        raise ValueError("YAML reads this name as another value; choose another name")
    return name


Name = Annotated[str, AfterValidator(checked_name)]


def suggestion(name: str, known: Iterable[str]) -> str:
    """`Did you mean x? ` for the known name most like `name`; empty where none is."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]}? " if close else ""
