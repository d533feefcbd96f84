"""Forest chart: one metric of every method with its interval."""

from matplotlib.axes import Axes

from unseen.report.figures.svg import INK, MUTED, PAPER, WIDE, inline, method_rows, panel, style_of
from unseen.report.summary import FLOOR, Summary, Value
from unseen.report.words import interval, name_of, percent


def forest(summary: Summary, metric: str, name: str) -> str:
    """One row per method, the highest first: the selected network with its interval and a tick per seed, the
    last iterate, the features before training."""
    rows, ranked = len(summary.methods), summary.ranked()
    with panel(name_of(metric), WIDE, 0.75 + 0.42 * rows) as (figure, axes):
        for position, method in enumerate(ranked):
            colour, y = style_of(summary.methods.index(method))[0], rows - 1 - position
            _interval(axes, summary.of(method, metric, FLOOR), y, MUTED, "x", 5)
            last, selected = summary.of(method, metric, "last"), summary.of(method, metric)
            if last is not None:
                axes.plot(
                    [100 * last.value], [y - 0.26], marker="o", markersize=4.5, markerfacecolor=PAPER,
                    markeredgecolor=colour, linestyle="none",
                )  # fmt: skip
            if selected is not None and len(selected.each) > 1:
                seeds = [100 * value for value in selected.each]
                axes.plot(
                    seeds, [y - 0.13] * len(seeds), marker="|", color=colour, markersize=6, linestyle="none"
                )
            _interval(axes, selected, y, colour, "o", 7)
            if selected is not None:
                axes.annotate(
                    percent(selected.value), (100 * selected.value, y), (0, 6), textcoords="offset points",
                    ha="center", fontsize=8.5, color=INK,
                )  # fmt: skip
        method_rows(axes, ranked, rows - 0.25)
        values = "; ".join(
            f"{method} {percent(value.value)} ({interval(value)})"
            for method in ranked
            if (value := summary.of(method, metric)) is not None
        )
        return inline(
            figure, name, f"{name_of(metric)} of each method in percent, with its interval: {values}"
        )


def _interval(axes: Axes, value: Value | None, y: int, colour: str, marker: str, size: int) -> None:
    if value is None:
        return
    if value.low is not None and value.high is not None:
        width = 2.4 if marker == "o" else 1.2
        axes.plot(
            [100 * value.low, 100 * value.high], [y, y], color=colour, linewidth=width, solid_capstyle="butt"
        )
    edge = 1.6 if marker == "x" else 1
    axes.plot(
        [100 * value.value],
        [y],
        marker=marker,
        color=colour,
        markersize=size,
        linestyle="none",
        markeredgewidth=edge,
    )
