"""Matplotlib figures as inline SVG with the colours and the font of the page.

A figure is drawn in the colours of a light page, and `save` writes it so. `inline` replaces them by the
variables of page.css, so that one figure fits a light and a dark page. Same figure, same bytes: the SVG has
no date and a fixed salt for ids. Text stays text; its layout uses matplotlib's own font and does not depend
on the fonts of the machine.
"""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Literal
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import UInt8
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

INK, MUTED, GRID, PAPER = "#1c1e23", "#5c626d", "#dfded9", "#ffffff"  # of page.css on a light page
WIDE, SMALL = 4.5, 4.0  # inches: two or three panels in a row on a laptop, one on a phone
_CAPTION = 20  # characters of a line above a picture of a grid
_FRAMES = "A number is a similarity. Solid frame: class of the query; dotted frame: another class."
MAX_MARKED = 30  # points of a curve with markers
SERIES = ("#0a63bd", "#b9500d", "#147a4b", "#9226a8", "#0b7285", "#8a6100", "#5046c8", "#b3194f")
DASHES: tuple[str | tuple[float, tuple[float, ...]], ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1, 1.2)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1)),
    (0, (8, 2)),
    (0, (2, 2)),
    (0, (4, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
_VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", PAPER: "paper"} | {
    colour: f"series-{i}" for i, colour in enumerate(SERIES)
}
_UNDATED = {".svg": ("Date", "Creator"), ".pdf": ("CreationDate", "Creator", "Producer")}


class Chart(Markup):
    """A figure as an <svg> element, and the figure."""

    figure: Figure


_STYLE = {
    "svg.hashsalt": "unseen",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # part of matplotlib
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.6,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "path.simplify": True,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.labelcolor": INK,
}


def style_of(position: int) -> tuple[str, object, str]:
    """(colour, dashes, marker) of the series at a position. The first eight differ in all three; 64 differ in
    the pair of colour and dashes, and in the pair of colour and marker."""
    place = _second(position)
    return SERIES[position % len(SERIES)], DASHES[place], MARKERS[place]


def _second(position: int) -> int:
    """The place of the dashes and of the marker: each round of the colours begins one place later."""
    return (position + position // len(SERIES)) % len(DASHES)


def dash_pattern(position: int) -> str:
    """The dashes of a series as an SVG stroke-dasharray for a line 3 wide; empty when solid."""
    dashes = DASHES[_second(position)]
    return "" if isinstance(dashes, str) else " ".join(f"{2 * length:g}" for length in dashes[1])


@contextmanager
def panel(title: str, width: float = 4.4, height: float = 2.7) -> Iterator[tuple[Figure, Axes]]:
    """One styled set of axes; sizes in inches of 72 CSS pixels."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title)
        yield figure, axes


@dataclass(frozen=True)
class Tile:
    """A picture of a grid. right: whether its image is a right match; None: not judged."""

    image: UInt8[np.ndarray, "H W 3"]
    caption: str
    right: bool | None = None


def picture_grid(title: str, lines: Sequence[Sequence[Tile]]) -> Figure:
    """A row of pictures per line. Right matches have a solid frame in the third colour, wrong ones a dotted
    frame in the second, as a line below states."""
    columns = max(map(len, lines))
    with rc_context(_STYLE):
        figure = Figure(figsize=(1.3 * columns, 0.4 + 1.5 * len(lines)), layout="constrained")
        figure.suptitle(plain(title), x=0.01, ha="left", fontsize=10, weight="bold")
        grid = figure.subplots(len(lines), columns, squeeze=False)
        for axes in grid.flat:
            axes.set_axis_off()
        for row, line in zip(grid, lines, strict=True):
            for axes, tile in zip(row, line, strict=False):
                axes.imshow(tile.image)
                axes.set_title(plain(fill(tile.caption, _CAPTION)), fontsize=7, weight="normal")
                if tile.right is not None:
                    height, width = tile.image.shape[:2]
                    colour, dashes = (SERIES[2], "-") if tile.right else (SERIES[1], ":")
                    axes.add_patch(
                        Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor=colour, linestyle=dashes,
                                  linewidth=2)
                    )  # fmt: skip
        if any(tile.right is not None for line in lines for tile in line):
            figure.supxlabel(_FRAMES, x=0.01, ha="left", fontsize=7)
        return figure


def with_legend(figure: Figure) -> Figure:
    """The figure with a legend below it, if it has labels; figures of the page have one for all."""
    if any(axes.get_legend_handles_labels()[1] for axes in figure.axes):
        with rc_context(_STYLE):
            figure.legend(loc="outside lower center", ncols=2)
    return figure


def few_ticks(axes: Axes, x: int = 5, y: int = 5, whole_x: bool = False) -> None:
    """Ticks that stay legible on a phone."""
    steps = [1, 2, 2.5, 5, 10]
    axes.xaxis.set_major_locator(MaxNLocator(x, integer=whole_x, steps=steps))
    axes.yaxis.set_major_locator(MaxNLocator(y, steps=steps))


def log_ticks(axes: Axes, locator: LogLocator) -> None:
    """Plain numbers at the ticks of a logarithmic y axis, and no minor ticks."""
    axes.yaxis.set_major_locator(locator)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def method_rows(axes: Axes, labels: Sequence[str], top: float) -> None:
    """A y axis with one labelled row each, the first one at the top, and an x axis in percent."""
    axes.set_yticks(range(len(labels)), [plain(label) for label in reversed(labels)], color=INK)
    axes.set_ylim(-0.6, top)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("percent")
    within_percent(axes, "x")


def marker_size(points: Sequence[float], size: float = 4.0) -> float:
    """The size of the markers of a curve; a curve of many points has none."""
    return size if len(points) < MAX_MARKED else 0.0


def within_percent(axes: Axes, side: Literal["x", "y"], margin: float = 0.06) -> None:
    """Limits the axis to a margin around the data, and to 0 to 100. Marks at the limits are drawn whole."""
    axes.margins(x=margin if side == "x" else None, y=margin if side == "y" else None)
    low, high = getattr(axes, f"get_{side}lim")()
    axes.set(**{f"{side}lim": (max(low, 0.0), min(high, 100.0))})
    for line in axes.lines:
        line.set_clip_on(False)


def inline(figure: Figure, name: str, description: str, whole: Mapping[str, str] | None = None) -> Chart:
    """The figure as an <svg> element.

    name: prefix of its ids, unique on the page. description: the text for screen readers. whole: the whole
    text of each shortened text of the figure, which becomes its title.
    """
    with rc_context(_STYLE):
        buffer = io.StringIO()
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(
        r"\s*<metadata>.*?</metadata>|\s*<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL
    )
    view = re.search(r'viewBox="([^"]+)"', text)
    assert view is not None, "matplotlib writes a viewBox"
    width, height = (float(part) for part in view.group(1).split()[2:])
    box = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg class="chart" {box} role="img" aria-label="{_attribute(description)}">'
    text = re.sub(r"^<svg[^>]*>", lambda _: head, text)
    text = re.sub(r' id="([^"]+)"', rf' id="{name}-\1"', text)
    text = text.replace("url(#", f"url(#{name}-").replace('xlink:href="#', f'href="#{name}-')
    text = text.replace("font-family: 'DejaVu Sans'; ", "")
    text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
    for short, title in (whole or {}).items():
        if short != title:
            titled = f">{escape(short)}<title>{escape(title)}</title></text>"
            text = text.replace(f">{escape(short)}</text>", titled)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    chart = Chart(re.sub(r"\s*\n\s*", "\n", text).strip())
    chart.figure = figure
    return chart


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as <path>.svg and <path>.pdf. The files have no date."""
    with rc_context(_STYLE):
        for suffix, names in _UNDATED.items():
            figure.savefig(path.with_name(path.name + suffix), metadata=dict.fromkeys(names))


def plain(text: str) -> str:
    """Text that matplotlib does not parse as a formula."""
    return text.replace("$", r"\$")


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
