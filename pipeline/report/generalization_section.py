"""What the page says of what carries over to classes never seen, beside the geometry: attributes and their transfer, gradient noise in training."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from pipeline.report import generalization
from pipeline.report.inputs import Inputs, Row
from pipeline.report.names import labels_of
from pipeline.report.outcome import NOISE, Shown
from pipeline.report.words import number

TRANSFER = tuple(f"transfer_map_{name}" for name in ("l2", "l2_std", "cosine", "cosine_std", "chance"))
_TITLES = dict(zip(NOISE, ("Covariance of gradients", "Covariance of their directions"), strict=True))


def attributes_section(
    inputs: Inputs,
    dataset: str,
    anchor: str,
    positions: Mapping[str, int],
    curves: Mapping[str, Mapping[str, Any]],
    means: Mapping[tuple[str, str], Mapping[str, float | None]],
) -> list[Markup]:
    """Charts of the methods that have attributes: their transfer, then what the first test classes are made of. curves: of the first seed."""
    names = inputs.shards[dataset].class_names
    labels = labels_of(names)
    charts = []
    if any(row.get("transfer_map_cosine") is not None for (_, network), row in means.items() if network == "selected"):
        charts.append(Markup(generalization.transfer(means, positions, f"{anchor}-transfer")))
    for method, run in curves.items():
        if "attributes" in run:
            classes = [(labels[label], names[label]) for label in run["attributes"]["labels"]]
            position = positions[method]
            charts.append(Markup(generalization.attributes(method, position, run["attributes"], classes, f"{anchor}-attributes-{position}")))
    return charts


def noise_section(inputs: Inputs, dataset: str, anchor: str, shown: list[Shown]) -> dict[str, Any] | None:
    """Charts and means over training of the methods whose recipe measures gradient noise; None where none does."""
    runs = {method.name: [run for run in inputs.of(dataset, method.name) if run.history and NOISE[0] in run.history[0]] for method in shown}
    histories = {method: [run.history for run in group] for method, group in runs.items() if group}
    if not histories:
        return None
    positions = {method.name: method.position for method in shown}
    rows = [
        {
            "method": method,
            "term": runs[method.name][0].recipe["recipe"]["training"]["gradient_noise"].replace("_", " "),
            "cells": [number(sum(over_training(rows, name) for rows in histories[method.name]) / len(histories[method.name])) for name in NOISE],
        }
        for method in shown
        if method.name in histories
    ]
    charts = [
        Markup(generalization.gradient_noise(histories, positions, title, name, f"{anchor}-noise-{place}"))
        for place, (name, title) in enumerate(_TITLES.items())
    ]
    return {"rows": rows, "charts": charts, "titles": list(_TITLES.values())}


def over_training(rows: Sequence[Row], name: str) -> float:
    """Mean over all iterations of a history whose rows hold the mean since the row before (IRT fig. 4)."""
    steps = [row["iteration"] - before["iteration"] for before, row in zip([{"iteration": 0.0}, *rows[:-1]], rows, strict=True)]
    return sum(row[name] * count for row, count in zip(rows, steps, strict=True)) / sum(steps)
