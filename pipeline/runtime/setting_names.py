"""Names of data sets and methods: they become names of files, stages and keys of params.yaml."""

import difflib
import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_KEYWORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # other values in YAML 1.1


def checked_name(name: str) -> str:
    """`name`, if it is valid as the name of a file, of a DVC stage and of a YAML key. Raises ValueError
    otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name starts with a letter and contains only letters, digits, `_` and `-`")
    if name.lower() in _KEYWORDS:
        raise ValueError("YAML reads this name as another value; choose another name")
    return name


Name = Annotated[str, AfterValidator(checked_name)]


def suggestion(name: str, known: Iterable[str]) -> str:
    """`Did you mean x? ` with the known name that is most similar to `name`; empty if no name is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"Did you mean {close[0]}? " if close else ""
