"""Short forms of the names of classes and files. The page has the whole name in a `title`.

The name of a class is often a path ("Obst und Gemüse/Äpfel/Granny Smith") that begins like many others. Its
label is its last steps. All classes of a data set have labels with the same number of steps, the smallest one
that makes the labels unique.
"""

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

_CUT = "…"
_WORDS = " /_-."  # the last characters of words
_BREAKS = re.compile(r"(?<=[/_.])(?=[^/_.\s])")  # browsers already break lines after spaces and hyphens


def labels_of(names: Sequence[str]) -> list[str]:
    """The label of each class, in order. If two classes have the same name, all labels are whole names."""
    steps = [name.split("/") for name in names]
    for depth in range(1, max(map(len, steps), default=1) + 1):
        labels = ["/".join(of[-depth:]) for of in steps]
        if len(set(labels)) == len(names):
            return labels
    return list(names)


def shorten(name: str, limit: int) -> str:
    """At most `limit` characters: the beginning of the name, and twice as many characters of its end.

    Cuts are between words unless no word fits.
    """
    if len(name) <= limit:
        return name
    head = (limit - len(_CUT)) // 3
    tail = limit - len(_CUT) - head
    first, last = name[:head], name[-tail:]
    if name[head] not in _WORDS:
        words = max(first.rfind(mark) for mark in _WORDS)
        first = first[: words + 1] or first
    if name[-tail - 1] not in _WORDS:
        words = min((place for mark in _WORDS if 0 <= (place := last.find(mark)) < tail // 2), default=-1)
        last = last[words + 1 :]
    return f"{first.rstrip()}{_CUT}{last.lstrip()}"


def breaking(name: str) -> Markup:
    """HTML with optional line breaks after slashes, underscores and full stops."""
    return Markup("<wbr>").join(escape(part) for part in _BREAKS.split(name))
