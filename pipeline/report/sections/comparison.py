"""Paired comparison of the methods on the same queries: one row per pair, those of the best method first."""

from collections.abc import Callable
from typing import Any

from unseen.evaluation.statistics.better import DECIDABLE, LEAST
from unseen.report.comparison import Pair, bounds
from unseen.report.dataset import DataSet, MethodStyle
from unseen.report.networks import protocols
from unseen.report.words import name_of, points, probability, signed_points

MAX_OPEN = 5  # pairs; with more, those without the best method are collapsed


def content(dataset: DataSet) -> dict[str, Any] | None:
    if not dataset.pairs:
        return None
    control = dataset.report_data.control
    return {
        **table_of(dataset.pairs, dataset.methods),
        "family": "all pairs of methods" if control is None else f"all methods against the control {control}",
        "level": f"{1 - dataset.runs()[0].protocol['confidence']:.2g}",
        "decidable": DECIDABLE,
        "protocols": protocols(dataset.report_data, dataset.name),
    }


def table_of(pairs: list[Pair], methods: tuple[MethodStyle, ...]) -> dict[str, Any]:
    """The rows of all pairs."""
    styles = {method.name: method for method in methods}
    names = list(dict.fromkeys((pair.first, pair.second) for pair in pairs))
    metrics = list(dict.fromkeys(pair.metric for pair in pairs))
    rows = [
        {
            "first": styles[first],
            "second": styles[second],
            "cells": [cell_of(pair) for pair in pairs if (pair.first, pair.second) == (first, second)],
        }
        for first, second in names
    ]
    columns = ["pair"]
    for metric in metrics:
        columns += [f"{name_of(metric)}, points", "p", "result"]
    leading = sum(first == names[0][0] for first, _ in names) if len(names) > MAX_OPEN else len(names)
    return {
        "columns": columns,
        "rows": rows[:leading],
        "collapsed": rows[leading:],
        "tests": len(pairs),
        "classes": f"{pairs[0].verdict.comparison.classes:,}",
        "least": " or ".join(f"{points(LEAST[metric])} points of {name_of(metric)}" for metric in metrics),
    }


def cell_of(pair: Pair, signed: Callable[[float | None], str] = signed_points) -> dict[str, str]:
    """A comparison in words. signed: the text of a number."""
    comparison = pair.verdict.comparison
    return {
        "metric": pair.metric,
        "difference": signed(comparison.difference),
        "interval": bounds(comparison, signed),
        "p": probability(pair.verdict.adjusted),
        "result": _result(pair),
        "better": pair.better or "",
    }


def _result(pair: Pair) -> str:
    if pair.better is None:
        return pair.verdict.outcome
    over_classes = pair.verdict.outcome == "distinct over these classes"
    return f"{pair.better} is {'higher over these classes' if over_classes else 'better'}"
