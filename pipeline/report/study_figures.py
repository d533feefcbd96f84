"""The charts of a study: a line chart over one numeric axis, a heat map over two, bars, and the relative
differences of rows from their baselines."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from unseen.report.study_cells import Column, Gain, Point, StudyTable, is_plain
from unseen.report.svg import (
    INK,
    MUTED,
    PAPER,
    SERIES,
    Chart,
    few_ticks,
    inline,
    panel,
    plain,
    style_of,
    with_legend,
)
from unseen.report.words import name_of

_LOGARITHMIC = 20  # smallest ratio of the ends of a positive axis with a logarithmic scale


def charts(table: StudyTable, name: str) -> list[Chart]:
    """The charts of a study as inline SVG: one line chart, a heat map per series, or bars; and the gains."""
    return [
        inline(figure, f"{name}-{number}", description)
        for number, (figure, description) in enumerate(_figures(table))
    ]


def _figures(table: StudyTable) -> Iterator[tuple[Figure, str]]:
    """Each figure, and its text for screen readers."""
    series = list(dict.fromkeys(point.series for point in table.points))
    if len(table.study.axes) == 1 and table.points:
        with _line_chart(table, series) as (figure, description):
            yield figure, description
    elif len(table.study.axes) == 2:
        for name in series:
            points = [point for point in table.points if point.series == name]
            with _heat_map(table, name, points) as (figure, description):
                yield figure, description
    if "bars" in table.study.figures:
        with _bar_chart(table) as (figure, description):
            yield figure, description
    for column, gains in table.charted_gains.items():
        with _gain_chart(column, gains) as (figure, description):
            yield figure, description


@contextmanager
def _bar_chart(table: StudyTable) -> Iterator[tuple[Figure, str]]:
    """A bar per row: our mean with its deviation over seeds, and the printed number as a hollow point."""
    columns = [column for column in table.columns if column.metric == table.study.metric]
    place = next(number for number, column in enumerate(table.columns) if column == columns[0])
    cells = [(line.label, line.cells[place]) for line in table.lines]
    title = columns[0].title
    with panel(title, 1.6 + 0.9 * len(cells), 2.7) as (figure, axes):
        for position, (_, cell) in enumerate(cells):
            if cell.ours is not None:
                error = cell.ours.deviation
                axes.bar(position, cell.ours.value, 0.6, yerr=error, color=style_of(position)[0], capsize=3)
            if cell.printed is not None:
                axes.plot(position, cell.printed.value, marker="o", color=INK, markerfacecolor=PAPER)
        axes.set_xticks(range(len(cells)), [plain(label) for label, _ in cells])
        axes.set_xlim(-0.6, len(cells) - 0.4)
        axes.set_ylabel("" if is_plain(table.study.metric) else "percent")
        axes.grid(axis="x", visible=False)
        texts = [f"{label} {cell.ours.value:.2f}" for label, cell in cells if cell.ours is not None]
        yield figure, f"{title}, ours: {'; '.join(texts)}"


def grouped_bars(tables: Sequence[StudyTable]) -> Figure:
    """The bars of all data sets in one figure: a group for each, a bar per row as in the chart of one data
    set."""
    study = tables[0].study
    rows = list(dict.fromkeys(line.label for table in tables for line in table.lines))
    width = 0.8 / len(rows)
    names: set[str] = set()
    with panel(name_of(study.metric), 1.6 + 0.5 * len(rows) * len(tables), 3.0) as (figure, axes):
        for group, table in enumerate(tables):
            place = next(n for n, column in enumerate(table.columns) if column.metric == study.metric)
            for line in table.lines:
                cell, row = line.cells[place], rows.index(line.label)
                x = group + (row - (len(rows) - 1) / 2) * width
                if cell.ours is not None:
                    label = "_" if line.label in names else plain(line.label)
                    names.add(line.label)
                    colour, error = style_of(row)[0], cell.ours.deviation
                    axes.bar(
                        x, cell.ours.value, 0.9 * width, yerr=error, color=colour, capsize=3, label=label
                    )
                if cell.printed is not None:
                    axes.plot(x, cell.printed.value, marker="o", color=INK, markerfacecolor=PAPER)
        axes.set_xticks(range(len(tables)), [plain(table.dataset) for table in tables])
        axes.set_xlim(-0.6, len(tables) - 0.4)
        axes.set_ylabel("" if is_plain(study.metric) else "percent")
        axes.grid(axis="x", visible=False)
    return with_legend(figure)


@contextmanager
def _gain_chart(column: Column, gains: Sequence[Gain]) -> Iterator[tuple[Figure, str]]:
    """A row per pair: our relative difference as a full point, the printed one as a hollow point."""
    title = f"Gains, {column.title}"
    with panel(title, 6.4, 1.4 + 0.24 * len(gains)) as (figure, axes):
        for label, value_of, face in (
            ("ours", lambda gain: gain.ours, SERIES[0]),
            ("printed", lambda gain: gain.printed, PAPER),
        ):
            known = [(value_of(gain), row) for row, gain in enumerate(gains) if value_of(gain) is not None]
            if known:
                axes.plot(
                    *zip(*known, strict=True), linestyle="none", marker="o", markersize=6,
                    markeredgecolor=SERIES[0], markerfacecolor=face, label=label,
                )  # fmt: skip
        axes.axvline(0, color=MUTED, linewidth=0.8)
        axes.set_yticks(range(len(gains)), [plain(gain.title) for gain in gains])
        axes.set_ylim(len(gains) - 0.5, -0.5)
        axes.set_xlabel("difference, percent of the baseline")
        axes.margins(x=0.1)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            figure.legend(loc="outside lower center", ncols=2)
        texts = [f"{gain.title} {_signed(gain.ours)}" for gain in gains]
        yield figure, f"{title}, ours in percent: {'; '.join(texts)}"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.1f}"


@contextmanager
def _line_chart(table: StudyTable, series: Sequence[str]) -> Iterator[tuple[Figure, str]]:
    """Our means with their deviation over seeds, and the printed numbers as hollow points."""
    (symbol,) = table.study.axes.values()
    unit = "" if is_plain(table.study.metric) else ", percent"
    with panel(f"{name_of(table.study.metric)} over {plain(symbol)}", 4.8, 3.0) as (figure, axes):
        texts = []
        for position, name in enumerate(series):
            points = sorted((point for point in table.points if point.series == name), key=lambda p: p.place)
            places = [point.place[0] for point in points]
            colour, dashes, marker = style_of(position)
            spread = [point.ours.deviation or 0.0 for point in points]
            label = plain(f"{name}, ours" if len(series) > 1 else "ours")
            values = [point.ours.value for point in points]
            axes.errorbar(
                places, values, yerr=spread if any(spread) else None, color=colour, linestyle=dashes,
                marker=marker, markersize=5, capsize=3, label=label,
            )  # fmt: skip
            known = [(place, point.printed) for place, point in zip(places, points, strict=True)
                     if point.printed is not None]  # fmt: skip
            if known:
                axes.plot(
                    *zip(*known, strict=True), color=colour, linestyle=(0, (1, 2)), marker=marker,
                    markersize=6, markerfacecolor=PAPER, label=label.replace("ours", "printed"),
                )  # fmt: skip
            pairs = zip(places, values, strict=True)
            texts.append(f"{name}: " + ", ".join(f"{place:g} {value:.2f}" for place, value in pairs))
        _scale(axes, [point.place[0] for point in table.points])
        axes.set_xlabel(plain(symbol))
        axes.set_ylabel(f"{name_of(table.study.metric)}{unit}")
        axes.margins(y=0.15)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
        yield figure, f"{name_of(table.study.metric)} over {symbol}; {'; '.join(texts)}"


def _scale(axes: Axes, places: Sequence[float]) -> None:
    """Ticks at the places if they are few; a logarithmic scale for a wide positive range."""
    ticks = sorted(set(places))
    if ticks[0] > 0 and ticks[-1] >= _LOGARITHMIC * ticks[0]:
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
    else:
        few_ticks(axes)
        if len(ticks) <= 10:
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


@contextmanager
def _heat_map(table: StudyTable, series: str, points: Sequence[Point]) -> Iterator[tuple[Figure, str]]:
    """A cell per point: our mean, and below it the printed number. A darker cell has a higher mean."""
    (first, second) = table.study.axes.values()
    rows, columns = (sorted({point.place[axis] for point in points}) for axis in (0, 1))
    values = [point.ours.value for point in points]
    low, high = min(values), max(values)
    width, height = 1.3 + 0.72 * len(columns), 1.2 + 0.5 * len(rows)
    title = f"{name_of(table.study.metric)}, {plain(series)}"
    with panel(title, max(width, 4.0), height) as (figure, axes):
        for point in points:
            row, column = rows.index(point.place[0]), columns.index(point.place[1])
            share = (point.ours.value - low) / (high - low) if high > low else 0.5
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=SERIES[0], edgecolor="none",
                          alpha=0.08 + 0.5 * share)
            )  # fmt: skip
            is_close = high - low < 0.1
            text = f"{point.ours.value:.4f}" if is_close else f"{point.ours.value:.1f}"
            raised = 0.14 if point.printed is not None else 0.0
            axes.text(column, row + raised, text, ha="center", va="center", color=INK)
            if point.printed is not None:
                axes.text(
                    column, row - 0.24, f"{point.printed:.1f}", ha="center", va="center",
                    color=MUTED, fontsize=7,
                )  # fmt: skip
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(-0.5, len(rows) - 0.5)
        axes.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
        axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel(plain(second))
        axes.set_ylabel(plain(first))
        cells = ", ".join(f"({p.place[0]:g}, {p.place[1]:g}) {p.ours.value:.2f}" for p in points)
        yield figure, f"{name_of(table.study.metric)} of {series} over {first} and {second}: {cells}"
