"""Metrics of every method and network on the test classes with intervals, as tables and charts."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes

from unseen.report.comparison import lead_of
from unseen.report.dataset import DataSet
from unseen.report.networks import few_validation_classes, floor, protocols
from unseen.report.report_data import RunResults
from unseen.report.summary import CLASS_MEAN, FLOOR, NETWORKS, Summary, Value, best_method
from unseen.report.svg import INK, MUTED, PAPER, WIDE, inline, method_rows, panel, style_of
from unseen.report.words import interval, name_of, percent

_SHOWN = tuple(network for network in NETWORKS if network != "untrained")  # its floor is FLOOR
_SEARCH_RECALL = "approximate_search_recall_at_"
_EQUAL = {  # metrics that equal another one
    "precision_at_1": "recall_at_1",
    f"{CLASS_MEAN}precision_at_1": f"{CLASS_MEAN}recall_at_1",
}


def content(dataset: DataSet) -> dict[str, Any]:
    summary, first = dataset.summary, dataset.runs()[0]
    metrics = metrics_over_queries(summary)
    class_means = [name for name in _different(summary) if name.startswith(CLASS_MEAN)]
    charted = [
        name for name in dict.fromkeys(("recall_at_1", summary.headline)) if name in metrics
    ] or metrics[:1]
    return {
        "table_over_queries": table_of(dataset, metrics),
        "table_over_classes": table_of(dataset, class_means),
        "headline": name_of(summary.headline),
        "control": dataset.report_data.control,
        "queries": f"{first.metrics['queries'] - first.metrics['lone_queries']:,}",
        "over": "queries" if dataset.is_landmarks else "test classes",
        "protocols": protocols(dataset.report_data, dataset.name),
        "few": few_validation_classes(dataset.report_data, dataset.name),
        "forests": [forest(summary, name, f"{dataset.anchor}-forest-{name}") for name in charted],
    }


def metrics_over_queries(summary: Summary) -> list[str]:
    """The metrics of the first table: means over queries."""
    return [name for name in _different(summary) if not name.startswith(CLASS_MEAN)]


def _different(summary: Summary) -> list[str]:
    return [name for name in summary.metrics if _EQUAL.get(name) not in summary.metrics]


def table_of(dataset: DataSet, metrics: Sequence[str]) -> dict[str, Any]:
    """Each method's selected network, then its other networks; methods in the order of `Summary.ranked`.

    A value is bold if its method is better in all its comparisons (comparison.py).
    """
    summary = dataset.summary
    best = {name: _best(dataset, name) for name in metrics}
    rows = []
    ranked = summary.ranked()
    for number, method in enumerate(dataset.styles[name] for name in ranked):
        for network in _SHOWN:
            if all(summary.of(method.name, name, network) is None for name in metrics):
                continue
            cells = []
            for name in metrics:
                value = summary.of(method.name, name, network)
                cells.append(
                    {
                        "metric": name,
                        "value": percent(value.value) if value else "–",
                        "interval": interval(value) if value else "",
                        "deviation": percent(value.deviation)
                        if value and value.deviation is not None
                        else "",
                        "best": network == "selected" and best[name] == method.name,
                    }
                )
            runs = dataset.runs(method.name)
            label = floor(runs[0]) if network == FLOOR else name_of(network)
            recall = search_recall(runs) if network == "approximate" else ""
            rows.append(
                {
                    "method": method,
                    "number": number,
                    "network": network,
                    "label": label,
                    "recall": recall,
                    "cells": cells,
                }
            )
    return {
        "methods": ranked,
        "metrics": [name_of(name.removeprefix(CLASS_MEAN)) for name in metrics],
        "rows": rows,
    }


def _best(dataset: DataSet, metric: str) -> str | None:
    """The method with the highest value, if it is better in all its comparisons."""
    best = best_method(dataset.summary, metric)
    lead = lead_of(dataset.pairs, best.method, metric) if best is not None else None
    is_better = lead is not None and all(verdict.outcome == "better" for verdict in lead.values())
    return best.method if best is not None and is_better else None


def search_recall(runs: Sequence[RunResults]) -> str:
    """The share of the exact nearest images that the approximate index finds, as a mean over `runs`."""
    shares = {
        int(key.rpartition("_")[2]): fmean(run.metrics[key] for run in runs)
        for key in runs[0].metrics
        if key.startswith(_SEARCH_RECALL)
    }
    k = max(shares)
    return f"finds {percent(shares[k])}% of the exact {k} nearest"


def forest(summary: Summary, metric: str, name: str) -> Markup:
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
