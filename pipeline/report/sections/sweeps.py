"""Sweeps: a chart per swept field, all trials, the command that adopts the best values."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from unseen.evaluation.statistics.seeds import over_seeds
from unseen.report.dataset import DataSet
from unseen.report.report_data import Sweep
from unseen.report.svg import GRID, INK, SERIES, SMALL, inline, panel, plain, within_percent
from unseen.report.words import counted, name_of, number, percent

CONFIDENCE = 0.95

LAST = ("last_recall_at_1", "last_r_precision", "last_map_at_r")  # of the last validation of a trial


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None without a sweep."""
    sweeps = [
        _sweep(sweep, f"{dataset.anchor}-sweep-{place}")
        for place, sweep in enumerate(dataset.report_data.sweeps)
        if sweep.dataset == dataset.name
    ]
    return {"sweeps": sweeps} if sweeps else None


def _sweep(sweep: Sweep, anchor: str) -> dict[str, Any]:
    best, fields = sweep.best, list(sweep.best["values"])
    metric, metric_name = f"best_{best['metric']}", name_of(best["metric"])
    scored = [
        trial for trial in sweep.trials if isinstance(trial[metric], int | float) and not trial["error"]
    ]
    last = [name for name in LAST if any(name in trial for trial in sweep.trials)]
    titles = {
        metric: f"best {metric_name}",
        **{name: f"last {name_of(name.removeprefix('last_'))}" for name in last},
    }
    return {
        "method": sweep.method,
        "trials": counted(len(sweep.trials), "trial"),
        "fields": ", ".join(fields),
        "metric": metric_name,
        "best": text_of_best(sweep),
        "stopped": any(trial["stopped_early"] == "True" for trial in sweep.trials),
        "seeds": len(best["trials"]),
        "columns": ["trial", "seed", *fields, "iterations", *titles.values(), "end"],
        "rows": [
            {"best": trial["trial"] in best["trials"], "cells": _cells(trial, fields, list(titles))}
            for trial in sweep.trials
        ],
        "charts": [
            chart(scored, field, metric, best, f"{anchor}-{place}") for place, field in enumerate(fields)
        ],
        "adopt": best["adopt"],
    }


def text_of_best(sweep: Sweep) -> str:
    """The best values of a sweep: `threshold 0.3, margin 0.1`."""
    values = sweep.best["values"].items()
    return ", ".join(f"{field.rpartition('.')[2]} {_text(value)}" for field, value in values)


def _text(value: Any) -> str:
    return number(value) if isinstance(value, int | float) else str(value)


def _cells(trial: dict[str, Any], fields: list[str], metrics: list[str]) -> list[str]:
    end = "failed" if trial["error"] else "stopped early" if trial["stopped_early"] == "True" else "complete"
    values = [_text(trial[field]) for field in ("seed", *fields, "iterations")]
    scores = [percent(trial[name]) if trial[name] != "" else "–" for name in metrics]
    return [str(trial["trial"]), *values, *scores, end]


def chart(
    trials: Sequence[Mapping[str, Any]], field: str, column: str, best: Mapping[str, Any], name: str
) -> Markup:
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
