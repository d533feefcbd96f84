"""Paired comparison of all methods on the same queries: one row per pair, those of the best method first."""

from typing import Any

from unseen.report.comparison import Pair
from unseen.report.dataset import DataSet, MethodStyle
from unseen.report.networks import protocols
from unseen.report.words import name_of, probability, signed_points

MAX_OPEN = 5  # pairs; with more, those without the best method are collapsed


def content(dataset: DataSet) -> dict[str, Any] | None:
    if not dataset.pairs:
        return None
    protocol = protocols(dataset.report_data, dataset.name)
    return {**table_of(dataset.pairs, dataset.methods), "protocols": protocol}


def table_of(pairs: list[Pair], methods: tuple[MethodStyle, ...]) -> dict[str, Any]:
    """The rows of all pairs."""
    styles = {method.name: method for method in methods}
    names = list(dict.fromkeys((pair.first, pair.second) for pair in pairs))
    rows = [
        {
            "first": styles[first],
            "second": styles[second],
            "cells": [_cell(pair) for pair in pairs if (pair.first, pair.second) == (first, second)],
        }
        for first, second in names
    ]
    columns = ["pair"]
    for metric in dict.fromkeys(pair.metric for pair in pairs):
        columns += [f"{name_of(metric)}, points", "p", "result"]
    leading = sum(first == names[0][0] for first, _ in names) if len(names) > MAX_OPEN else len(names)
    return {
        "columns": columns,
        "rows": rows[:leading],
        "collapsed": rows[leading:],
        "tests": len(pairs),
        "level": f"{pairs[0].level:.2g}",
        "classes": f"{pairs[0].comparison.classes:,}",
    }


def _cell(pair: Pair) -> dict[str, str]:
    return {
        "metric": pair.metric,
        "difference": signed_points(pair.comparison.difference),
        "interval": f"{signed_points(pair.comparison.low)} to {signed_points(pair.comparison.high)}",
        "seeds": f"{signed_points(pair.seeds.low)} to {signed_points(pair.seeds.high)}" if pair.seeds else "",
        "p": probability(pair.adjusted),
        "result": _result(pair),
        "better": pair.better or "",
    }


def _result(pair: Pair) -> str:
    if pair.seeds is None:
        return f"{pair.better} is higher over classes" if pair.better else "not distinct from zero"
    if pair.better:
        return f"{pair.better} is better"
    return "not significant over seeds" if pair.differs_over_classes else "not significant"
