"""The best validation metric of each trial of a sweep over one swept field."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.figures.svg import GRID, INK, SERIES, SMALL, inline, panel, plain, within_percent
from pipeline.report.words import name_of


def sweep(
    trials: Sequence[Mapping[str, Any]], field: str, column: str, best: Mapping[str, Any], name: str
) -> str:
    """`column` of every trial over `field`, the best trial circled. Values that are not numbers have equal
    distances.
    """
    values = [trial[field] for trial in trials]
    texts = sorted({str(value) for value in values})
    is_numeric = all(isinstance(value, int | float) for value in values)
    places = values if is_numeric else [texts.index(str(value)) for value in values]
    scores = [100 * trial[column] for trial in trials]
    with panel(plain(field), SMALL, 2.5) as (figure, axes):
        if is_numeric and len(set(values)) == len(values):
            order = sorted(range(len(values)), key=places.__getitem__)
            axes.plot([places[i] for i in order], [scores[i] for i in order], color=GRID, linewidth=1.4)
        axes.plot(places, scores, color=SERIES[0], marker="o", markersize=5.5, linestyle="none")
        for place, score, trial in zip(places, scores, trials, strict=True):
            if trial["trial"] == best["trial"]:
                axes.plot(
                    [place], [score], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=INK,
                    linestyle="none",
                )  # fmt: skip
        if not is_numeric:
            axes.set_xticks(range(len(texts)), [plain(text) for text in texts])
        elif min(values) > 0 and max(values) > 50 * min(values):
            axes.set_xscale("log")
        metric = name_of(best["metric"])
        axes.set_ylabel(f"{metric}, percent")
        axes.margins(x=0.1)
        within_percent(axes, "y", 0.15)
        return inline(figure, name, f"{metric} on validation classes of {len(trials)} trials over {field}")
