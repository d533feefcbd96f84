"""The validation metric of the trials of a sweep over one swept field."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unseen.evaluation.statistics.seeds import over_seeds
from unseen.report.figures.svg import GRID, INK, SERIES, SMALL, inline, panel, plain, within_percent
from unseen.report.words import name_of

CONFIDENCE = 0.95


def sweep(
    trials: Sequence[Mapping[str, Any]], field: str, column: str, best: Mapping[str, Any], name: str
) -> str:
    """`column` over `field`: the mean over the trials of equal values, with its t interval if they have
    several seeds. The best values are circled.

    Hollow points are trials that were stopped early, whose training was shorter. The line joins the others.
    Values that are not numbers have equal distances.
    """
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for trial in trials:
        groups.setdefault(tuple(str(trial[swept]) for swept in best["values"]), []).append(trial)
    values = [group[0][field] for group in groups.values()]
    texts = sorted({str(value) for value in values})
    is_numeric = all(isinstance(value, int | float) for value in values)
    places = values if is_numeric else [texts.index(str(value)) for value in values]
    scores = [100 * np.array([trial[column] for trial in group], np.float64) for group in groups.values()]
    is_short = [any(trial["stopped_early"] == "True" for trial in group) for group in groups.values()]
    is_best = [group[0]["trial"] in best["trials"] for group in groups.values()]
    with panel(plain(field), SMALL, 2.5) as (figure, axes):
        if is_numeric and len(set(values)) == len(values):
            order = sorted(
                (i for i, short in enumerate(is_short) if not short), key=lambda place: places[place]
            )
            axes.plot(
                [places[i] for i in order], [scores[i].mean() for i in order], color=GRID, linewidth=1.4
            )
        draw = functools.partial(axes.plot, marker="o", linestyle="none")
        for place, group_scores, short, circled in zip(places, scores, is_short, is_best, strict=True):
            if len(group_scores) > 1:
                average = over_seeds(group_scores, CONFIDENCE)
                axes.vlines(place, average.low, average.high, color=SERIES[0], linewidth=1.4)
            fill = "none" if short else SERIES[0]
            mean = group_scores.mean()
            draw([place], [mean], color=SERIES[0], markersize=5.5, markerfacecolor=fill)
            if circled:
                draw([place], [mean], markersize=11, markerfacecolor="none", markeredgecolor=INK)
        if not is_numeric:
            axes.set_xticks(range(len(texts)), [plain(text) for text in texts])
        elif min(values) > 0 and max(values) > 50 * min(values):
            axes.set_xscale("log")
        metric = name_of(best["metric"])
        axes.set_ylabel(f"{metric}, percent")
        axes.margins(x=0.1)
        within_percent(axes, "y", 0.15)
        return inline(figure, name, f"{metric} on validation classes of {len(trials)} trials over {field}")
