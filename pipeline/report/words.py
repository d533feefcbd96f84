"""Numbers and names as text: percent with one digit, small numbers with three digits, short hashes."""

import math
import re
from collections.abc import Sequence

from unseen.report.summary import Value

_NAMES = {
    "map": "MAP",
    "map_at_r": "MAP@R",
    "nmi": "NMI",
    "r_precision": "R-precision",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "gflops": "GFLOPs",
    "imagenet_top_1": "ImageNet top-1",
    "selected": "selected",
    "last": "last iterate",
    "approximate": "with the approximate index",
    "best_on_test": "best on test (do not quote)",
}
_FAMILIES = {"recall": "Recall", "precision": "Precision", "map": "MAP", "mp": "mP"}
_METRIC = re.compile(
    r"(?:(?P<before>.+)_)?(?:(?P<family>recall|precision|map|mp)_at_(?P<k>\d+)|(?P<single>map_at_r|r_precision|map|nmi))"
)


def name_of(key: str) -> str:
    """`recall_at_1` -> `Recall@1`, `class_mean_map` -> `class mean MAP`; other keys with spaces for
    underscores.
    """
    match = _METRIC.fullmatch(key)
    if match is None:
        return _NAMES.get(key, key.replace("_", " "))
    named = _NAMES[match["single"]] if match["single"] else f"{_FAMILIES[match['family']]}@{match['k']}"
    return f"{(match['before'] or '').replace('_', ' ')} {named}".lstrip()


def percent(share: float | None) -> str:
    """A share in [0, 1] in percent with one digit."""
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.1f}"


def interval(value: Value) -> str:
    return "" if value.low is None or value.high is None else span(value.low, value.high)


def span(low: float, high: float) -> str:
    """Two shares in percent."""
    return f"{percent(low)} – {percent(high)}"


def number(value: float | int | None, digits: int = 3) -> str:
    """Significant digits, without an exponent if that stays short."""
    if value is None or not math.isfinite(value):
        return "–"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    text = f"{value:.{digits}g}"
    return (
        f"{value:.{digits}e}"
        if "e" in text and abs(value) < 1e-4
        else (f"{value:,.0f}" if "e" in text else text)
    )


def decimals(value: float | None) -> str:
    """Three decimals: for columns of numbers of order one."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.3f}"


def points(difference: float) -> str:
    """A difference of two shares in percentage points, without its sign."""
    return f"{abs(100 * difference):.1f}"


def signed_points(difference: float | None) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return (
        "–"
        if difference is None or not math.isfinite(difference)
        else f"{100 * difference:+.1f}".replace("-", "−")
    )


def signed_number(difference: float | None) -> str:
    """A difference of two numbers of order one, with its sign."""
    return "–" if difference is None else f"{difference:+.3f}".replace("-", "−")


def probability(value: float) -> str:
    """A p value: two decimals, three below 0.1."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(count: int, noun: str) -> str:
    """`1 class`, `64 classes`."""
    plural = noun if count == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {plural}"


def short(digest: str) -> str:
    """The first 12 characters of a hash."""
    return digest.split(":")[-1][:12]
