"""Accuracy against CPU time of the rungs as SVG: one panel for each ladder, a point for each rung."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 300, 230  # of a panel, pixels
LEFT, RIGHT, TOP, BOTTOM = 44, 16, 30, 40
COLOURS = {"frozen": "#666666", "linear": "#0072b2", "head": "#d55e00", "adapt": "#009e73"}  # Okabe and Ito


class Panel(NamedTuple):
    """One ladder. rungs and chosen: as in ladder.json."""

    title: str
    rungs: Sequence[dict[str, Any]]
    chosen: dict[str, Any]


def picture(panels: Sequence[Panel], columns: int = 3) -> str:
    """An SVG of the panels in rows. Panels of one row have one axis of MAP@R."""
    columns = min(columns, len(panels))
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    parts = []
    for row, members in enumerate(rows):
        low, high = _range([end for panel in members for rung in panel.rungs for end in _ends(rung)])
        for column, panel in enumerate(members):
            parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">')
            parts += [*_panel(panel, low, high), "</g>"]
    size = f'width="{columns * WIDTH}" height="{len(rows) * HEIGHT}"'
    view = f'viewBox="0 0 {columns * WIDTH} {len(rows) * HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {view} font-family="sans-serif" font-size="11">'
    lines = (head, '<rect width="100%" height="100%" fill="#ffffff"/>', *parts, "</svg>", "")
    return "\n".join(lines)


def _ends(rung: dict[str, Any]) -> list[float]:
    """Of the interval of MAP@R; without one the value."""
    return [rung["test"].get(f"map_at_r_{end}", rung["test"]["map_at_r"]) for end in ("low", "high")]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Different multiples of 0.1 around the values."""
    low, high = math.floor(10 * min(values)), math.ceil(10 * max(values))
    return (low if low < high else low - 1) / 10, high / 10


def _panel(panel: Panel, low: float, high: float) -> Iterator[str]:
    times = [max(1.0, rung["seconds"]) for rung in panel.rungs]
    first, last = math.log10(min(times)) - 0.15, math.log10(max(times)) + 0.4

    def x(seconds: float) -> float:
        share = (math.log10(max(1.0, seconds)) - first) / (last - first)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    yield f'<text x="{LEFT}" y="18" font-weight="bold">{escape(panel.title)}</text>'
    for step in range(round(10 * low), round(10 * high) + 1):
        place = y(step / 10)
        yield f'<path d="M{LEFT} {place}H{WIDTH - RIGHT}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 6}" y="{place + 4}" text-anchor="end">{10 * step}</text>'
    for seconds in (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10000.0):
        if first <= math.log10(seconds) <= last:
            yield f'<path d="M{x(seconds)} {HEIGHT - BOTTOM}v4" stroke="#666666"/>'
            tick = f'x="{x(seconds)}" y="{HEIGHT - BOTTOM + 16}"'
            yield f'<text {tick} text-anchor="middle">{seconds:,.0f}</text>'
    yield f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">CPU seconds</text>'
    yield f'<text transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">MAP@R</text>'
    for rung, seconds in zip(panel.rungs, times, strict=True):
        colour = COLOURS[rung["name"]]
        middle, bounds = rung["test"]["map_at_r"], _ends(rung)
        is_chosen = (rung["name"], rung["size"]) == (panel.chosen["name"], panel.chosen["size"])
        yield f'<path d="M{x(seconds)} {y(bounds[0])}V{y(bounds[1])}" stroke="{colour}" stroke-width="2"/>'
        fill = colour if is_chosen else "#ffffff"
        yield (
            f'<circle cx="{x(seconds)}" cy="{y(middle)}" r="4" fill="{fill}" stroke="{colour}" '
            'stroke-width="2"/>'
        )
        name = f"{rung['name']} {rung['size']}" if rung["name"] == "frozen" else rung["name"]
        weight = ' font-weight="bold"' if is_chosen else ""
        yield f'<text x="{x(seconds) + 7}" y="{y(middle) + 4}" fill="{colour}"{weight}>{name}</text>'
