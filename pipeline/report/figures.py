"""Figures of results and of training: intervals per metric, validation curves, loss terms, sweeps."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.axes import Axes

from pipeline.report.summary import Results, Value
from pipeline.report.svg import GRID, INK, MUTED, PAPER, SERIES, few_ticks, inline, panel, plain, style_of
from pipeline.report.words import interval, name_of, percent

WIDE, SMALL = 4.5, 4.0  # inches: two or three panels in a row on a laptop, one on a phone

Row = Mapping[str, float]


def forest(found: Results, metric: str, name: str) -> str:
    """Selected network of each method with its interval over classes and a tick for each seed, last iterate and network before training beside it."""
    rows = len(found.methods)
    with panel(name_of(metric), WIDE, 0.75 + 0.42 * rows) as (figure, axes):
        for position, method in enumerate(found.methods):
            colour = style_of(position)[0]
            y = rows - 1 - position
            _interval(axes, found.of(method, metric, "untrained"), y, MUTED, "x", 5)
            last, selected = found.of(method, metric, "last"), found.of(method, metric)
            if last is not None:
                axes.plot([100 * last.value], [y - 0.26], marker="o", markersize=4.5, markerfacecolor=PAPER, markeredgecolor=colour, linestyle="none")
            if selected is not None and len(selected.each) > 1:
                seeds = [100 * value for value in selected.each]
                axes.plot(seeds, [y - 0.13] * len(seeds), marker="|", color=colour, markersize=6, linestyle="none")
            _interval(axes, selected, y, colour, "o", 7)
            if selected is not None:
                axes.annotate(
                    percent(selected.value), (100 * selected.value, y), (0, 6), textcoords="offset points", ha="center", fontsize=8.5, color=INK
                )
        axes.set_yticks(range(rows), [plain(method) for method in reversed(found.methods)], color=INK)
        axes.set_ylim(-0.6, rows - 0.25)
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("percent")
        within_percent(axes, "x")
        said = "; ".join(f"{m} {percent(v.value)} ({interval(v)})" for m in found.methods if (v := found.of(m, metric)) is not None)
        return inline(figure, name, f"{name_of(metric)} of each method in percent, with its interval: {said}")


def _interval(axes: Axes, value: Value | None, y: int, colour: str, marker: str, size: int) -> None:
    if value is None:
        return
    if value.low is not None and value.high is not None:
        axes.plot([100 * value.low, 100 * value.high], [y, y], color=colour, linewidth=2.4 if marker == "o" else 1.2, solid_capstyle="butt")
    axes.plot([100 * value.value], [y], marker=marker, color=colour, markersize=size, linestyle="none", markeredgewidth=1.6 if marker == "x" else 1)


def validation(histories: Mapping[str, Sequence[Sequence[Row]]], positions: Mapping[str, int], metric: str, name: str) -> str:
    """`metric` on held-out train classes over the iterations: one line per run, a method's seeds alike."""
    with panel(f"{name_of(metric)} on validation classes", WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                x, y = [row["iteration"] for row in rows], [100 * row[metric] for row in rows]
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=4 if len(x) < 30 else 0)
        axes.set_xlabel("iteration")
        axes.set_ylabel("percent")
        within_percent(axes, "y")
        few_ticks(axes, whole_x=True)
        return inline(figure, name, f"{name_of(metric)} on held-out train classes over the iterations, one line per run of {', '.join(histories)}")


def losses(method: str, runs: Sequence[Sequence[Row]], terms: Sequence[str], name: str) -> str:
    """Weighted terms of the loss, whose sum is the loss: means over the steps between validations; the mean over seeds."""
    with panel(plain(method), SMALL, 2.5) as (figure, axes):
        iterations = [row["iteration"] for row in min(runs, key=len)]
        for position, term in enumerate(["loss", *terms] if len(terms) > 1 else ["loss"]):
            mean = [sum(rows[i][term] for rows in runs) / len(runs) for i in range(len(iterations))]
            _, dashes, marker = style_of(position)
            label = "sum" if term == "loss" else term.replace("_", " ")
            colour = INK if term == "loss" else SERIES[(position + 4) % len(SERIES)]
            axes.plot(
                iterations, mean, color=colour, linestyle=dashes, marker=marker, markersize=3.5 if len(iterations) < 30 else 0, label=plain(label)
            )
        axes.set_xlabel("iteration")
        few_ticks(axes, whole_x=True)
        if len(terms) > 1:
            axes.legend(loc="best")
        return inline(figure, name, f"Loss of {method} over the iterations: the sum and its terms {', '.join(terms)}")


def within_percent(axes: Axes, side: Literal["x", "y"], margin: float = 0.06) -> None:
    """Room about what is drawn, but none below 0 or beyond 100: there is no such percentage. Marks on these ends are drawn whole."""
    if side == "x":
        axes.margins(x=margin)
        low, high = axes.get_xlim()
        axes.set_xlim(max(low, 0.0), min(high, 100.0))
    else:
        axes.margins(y=margin)
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 0.0), min(high, 100.0))
    for line in axes.lines:
        line.set_clip_on(False)


def sweep(trials: Sequence[Mapping[str, Any]], field: str, column: str, best: Mapping[str, Any], name: str) -> str:
    """Best validation metric (in `column`) of every trial over one swept field, the best one circled; what is no number stands side by side."""
    values = [trial[field] for trial in trials]
    words = sorted({str(value) for value in values})
    numeric = all(isinstance(value, int | float) for value in values)
    places = values if numeric else [words.index(str(value)) for value in values]
    scores = [100 * trial[column] for trial in trials]
    with panel(plain(field), SMALL, 2.5) as (figure, axes):
        if numeric and len(set(values)) == len(values):
            order = sorted(range(len(values)), key=places.__getitem__)
            axes.plot([places[i] for i in order], [scores[i] for i in order], color=GRID, linewidth=1.4)
        axes.plot(places, scores, color=SERIES[0], marker="o", markersize=5.5, linestyle="none")
        for place, score, trial in zip(places, scores, trials, strict=True):
            if trial["trial"] == best["trial"]:
                axes.plot([place], [score], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK, linestyle="none")
        if not numeric:
            axes.set_xticks(range(len(words)), [plain(word) for word in words])
        elif min(values) > 0 and max(values) > 50 * min(values):
            axes.set_xscale("log")
        metric = name_of(best["metric"])
        axes.set_ylabel(f"{metric}, percent")
        axes.margins(x=0.1)
        within_percent(axes, "y", 0.15)
        return inline(figure, name, f"{metric} on validation classes of {len(trials)} trials over {field}")
