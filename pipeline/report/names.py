"""Names of classes and files where there is little room: what tells one from another is kept, the middle goes.

A class is often a path ("Obst und Gemüse/Äpfel/Granny Smith") whose beginning it shares with many. Its label is the shortest run of last steps that
no two classes of the data set have in common, as many steps for one class as for another. What is shortened or left out stands whole in a `title`.
"""

import re
from collections.abc import Sequence

from markupsafe import Markup, escape

_CUT = "…"
_WORDS = " /_-."  # a word ends behind one of these
_BREAKS = re.compile(r"(?<=[/_.])(?=[^/_.\s])")  # beside spaces and hyphens, where a browser breaks by itself


def labels_of(names: Sequence[str]) -> list[str]:
    """The label of each class, in order. Classes of one name alike (which nothing tells apart) keep it whole."""
    steps = [name.split("/") for name in names]
    for depth in range(1, max(map(len, steps), default=1) + 1):
        labels = ["/".join(of[-depth:]) for of in steps]
        if len(set(labels)) == len(names):
            return labels
    return list(names)


def shorten(name: str, limit: int) -> str:
    """At most `limit` characters: whole words of its beginning and twice as much of its end; within a word only where no word fits."""
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
    """HTML that a browser may also break behind a slash, an underscore and a full stop, which it takes for letters."""
    return Markup("<wbr>").join(escape(part) for part in _BREAKS.split(name))
