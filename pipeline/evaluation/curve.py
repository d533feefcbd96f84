"""What known photos get at each rate of false matches: the curve of a catalog."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64

from unseen.evaluation.decision import LeftOut
from unseen.evaluation.statistics.intervals import class_intervals
from unseen.evaluation.unknown import false_bound, percent, wrong_bound
from unseen.runtime.text import aligned

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # of photos of unknown products with an answer; 1: all
KINDS = ("right", "wrong", "unknown")
COLOURS = {"right": "#009e73", "wrong": "#d55e00", "unknown": "#666666"}  # Okabe and Ito
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 44, 16, 30, 40  # pixels


class Rate(NamedTuple):
    """A share of the photos of known products, with its interval over classes; None: too few classes."""

    value: float
    low: float | None
    high: float | None


class Point(NamedTuple):
    """What photos get at a threshold."""

    score: float  # the threshold; -1: every photo gets an answer
    false: float  # share of the photos of unknown products that get an answer
    false_limit: float  # its upper confidence limit
    right: Rate  # photos of known products that get the right product
    wrong: Rate
    unknown: Rate
    wrong_limit: float


def curve(of_catalog: LeftOut, classes: int, confidence: float = 0.95) -> list[Point]:
    """A point for the largest rate of false matches of at most each of SHARES; empty if no product has two
    photos. classes: products of the catalog that are left out."""
    wrong_of = wrong_bound(of_catalog, confidence)
    if wrong_of is None:
        return []
    false_of = false_bound(of_catalog, classes, confidence)
    known = ~np.isnan(of_catalog.known)
    scores, right, label = of_catalog.known[known], of_catalog.right[known], of_catalog.label[known]
    descending = np.sort(of_catalog.other)[::-1]
    points = []
    for share in SHARES:
        allowed = int(share * len(descending))
        score = -1.0 if share == 1 else float(np.nextafter(descending[allowed], np.float32(np.inf)))
        answered = scores >= score
        values = np.stack([answered & right, answered & ~right, ~answered], axis=1).astype(np.float64)
        rates = rates_of(values, label, confidence)
        false = float((of_catalog.other >= score).mean())
        points.append(
            Point(score, false, false_of.at(score), rates[0], rates[1], rates[2], wrong_of.at(score))
        )
    return points


def rates_of(
    values: Float64[np.ndarray, "Q F"], labels: Int64[np.ndarray, "Q"], confidence: float = 0.95
) -> list[Rate]:
    """The averages of F shares of Q photos."""
    averages, ends = values.mean(axis=0).tolist(), class_intervals(values, labels, confidence)
    if ends is None:
        return [Rate(average, None, None) for average in averages]
    return [Rate(*each) for each in zip(averages, *(end.tolist() for end in ends), strict=True)]


def plain(point: Point) -> dict[str, Any]:
    """For JSON."""
    return point._asdict() | {kind: getattr(point, kind)._asdict() for kind in KINDS}


def of_plain(content: dict[str, Any]) -> Point:
    """The point of `plain`."""
    return Point(**content | {kind: Rate(**content[kind]) for kind in KINDS})


def lines(points: Sequence[Point]) -> Iterator[str]:
    """The curve as a table."""
    rows = [["false matches of unknown", "right product", "wrong product", "unknown"]]
    for point in points:
        rates = [shown(rate) for rate in (point.right, point.wrong, point.unknown)]
        rows.append([f"{percent(point.false)} (at most {percent(point.false_limit)})", *rates])
    yield from aligned(rows)


def shown(rate: Rate) -> str:
    """`76% (70.1% to 81%)`."""
    if rate.low is None or rate.high is None:
        return percent(rate.value)
    return f"{percent(rate.value)} ({percent(rate.low)} to {percent(rate.high)})"


def picture(points: Sequence[Point]) -> str:
    """The curve as an SVG: shares of the photos of known products, with intervals as bands."""

    def x(value: float) -> float:
        return round(_LEFT + value**0.5 * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        return round(_TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM), 1)

    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="18" font-weight="bold">Photos of known products</text>',
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
        "photos of unknown products with an answer</text>",
    ]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path d="M{_LEFT} {y(tick)}H{_WIDTH - _RIGHT}" stroke="#dddddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:.0%}</text>')
    for tick in (0.01, 0.05, 0.1, 0.2, 0.5, 1.0):
        place = f'x="{x(tick)}" y="{_HEIGHT - _BOTTOM + 16}"'
        parts.append(f'<text {place} text-anchor="middle">{tick:.0%}</text>')
    for kind in KINDS:
        rates = [getattr(point, kind) for point in points]
        places = [x(point.false) for point in points]
        if rates[0].low is not None:
            around = [*zip(places, [y(rate.high) for rate in rates], strict=True)]
            around += reversed([*zip(places, [y(rate.low) for rate in rates], strict=True)])
            band = " ".join(f"{left},{top}" for left, top in around)
            parts.append(f'<polygon points="{band}" fill="{COLOURS[kind]}" fill-opacity="0.15"/>')
        line = " ".join(f"{left},{y(rate.value)}" for left, rate in zip(places, rates, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[kind]}" stroke-width="2"/>')
        shift = 170 + 70 * KINDS.index(kind)
        parts.append(f'<text x="{_LEFT + shift}" y="18" fill="{COLOURS[kind]}">{kind}</text>')
    return "\n".join([*parts, "</svg>", ""])
