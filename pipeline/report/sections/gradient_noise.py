"""Gradient noise of the methods whose recipe names a loss term in training.gradient_noise."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.ticker import LogLocator, MaxNLocator

from unseen.report.dataset import DataSet
from unseen.report.report_data import HistoryRow
from unseen.report.svg import WIDE, inline, log_ticks, marker_size, panel, style_of
from unseen.report.words import number

NOISE = ("gradient_covariance", "direction_covariance")  # columns of a history
_TITLES = dict(zip(NOISE, ("Covariance of gradients", "Covariance of gradient directions"), strict=True))


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None if no method measures it."""
    measured = {
        method: histories for method, histories in dataset.histories.items() if NOISE[0] in histories[0][0]
    }
    if not measured:
        return None
    rows = []
    for method in (method for method in dataset.methods if method.name in measured):
        recipe, histories = dataset.runs(method.name)[0].recipe["recipe"], measured[method.name]
        means = [
            sum(over_training(history, name) for history in histories) / len(histories) for name in NOISE
        ]
        term = recipe["training"]["gradient_noise"].replace("_", " ")
        rows.append({"method": method, "term": term, "cells": [number(mean) for mean in means]})
    charts = [
        gradient_noise(measured, dataset.positions, title, name, f"{dataset.anchor}-noise-{place}")
        for place, (name, title) in enumerate(_TITLES.items())
    ]
    return {"rows": rows, "figures": charts, "titles": list(_TITLES.values())}


def over_training(history: Sequence[HistoryRow], name: str) -> float:
    """The mean over all iterations of a column whose rows contain the mean since the previous row (IRT fig.
    4).
    """
    previous: list[HistoryRow] = [{"iteration": 0.0}, *history[:-1]]
    steps = [row["iteration"] - before["iteration"] for before, row in zip(previous, history, strict=True)]
    return sum(row[name] * count for row, count in zip(history, steps, strict=True)) / sum(steps)


def gradient_noise(
    histories: Mapping[str, Sequence[Sequence[HistoryRow]]],
    positions: Mapping[str, int],
    title: str,
    column: str,
    name: str,
) -> Markup:
    """Nuclear norm of a covariance over the iterations: one line per run. The axis is logarithmic without
    zeros.
    """
    with panel(title, WIDE, 2.8) as (figure, axes):
        for method, runs in histories.items():
            colour, dashes, marker = style_of(positions[method])
            for rows in runs:
                x, y = [row["iteration"] for row in rows], [row[column] for row in rows]
                axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=marker_size(x))
        if all(row[column] > 0 for runs in histories.values() for rows in runs for row in rows):
            axes.set_yscale("log")
            log_ticks(axes, LogLocator(subs=(1, 2, 5), numticks=9))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlabel("iteration")
        axes.set_ylabel("nuclear norm")
        return inline(figure, name, f"{title}: nuclear norm over the iterations of {', '.join(histories)}")
