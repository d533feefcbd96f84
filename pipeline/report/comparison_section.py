"""What the page says of methods against each other on the same queries, and of one method over its seeds.

Queries, intervals and tests are those of pipeline/evaluation/comparison.py, drawn as the evaluation's protocol says. All pairs and metrics of a data
set are one family: its p values are adjusted together (Holm), and enough signs are drawn for the smallest of them to be found. A method is said to
be *ahead* only where the interval of the difference leaves zero out and the adjusted p value is at most 1 - confidence. That is about these
trainings and other classes; whether other trainings would agree, several seeds tell.
"""

import math
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from pipeline.evaluation.statistics.comparison import Comparison, compare
from pipeline.evaluation.statistics.holm import holm
from pipeline.evaluation.statistics.seeds import Average, over_seeds
from pipeline.evaluation.tables import read_runs
from pipeline.report.inputs import Inputs
from pipeline.report.joint_intervals import column_of
from pipeline.report.opening import Leader
from pipeline.report.outcome import Shown
from pipeline.report.summary import HEADLINE, Results
from pipeline.report.words import name_of, percent, probability, signed_points, span

COMPARED = (HEADLINE, "recall_at_1")
MANY = 15  # pairs, beyond which those without the leading method are folded away


@dataclass(frozen=True)
class Pair:
    """`first` minus `second` in one metric."""

    first: str
    second: str
    metric: str
    found: Comparison
    adjusted: float  # p value
    seeds: Average | None  # of the differences of the seeds, where there are several
    level: float  # 1 - confidence

    @property
    def ahead(self) -> str | None:
        """The method that these trainings put ahead on these classes, None where that stays open."""
        if self.adjusted > self.level or self.found.low <= 0 <= self.found.high:
            return None
        return self.first if self.found.low > 0 else self.second

    @property
    def over_seeds(self) -> bool:
        """Whether the interval over seeds says the same; False with one seed."""
        return self.seeds is not None and (self.seeds.low > 0 if self.ahead == self.first else self.seeds.high < 0)


def compared(inputs: Inputs, dataset: str) -> list[Pair]:
    """All pairs of methods in all of COMPARED that the per-query files have, the method with the higher headline first.

    Raises UserError where the methods were not shown the same queries.
    """
    runs = {method: inputs.of(dataset, method) for method in inputs.methods}
    protocol = inputs.of(dataset)[0].protocol
    level = 1 - protocol["confidence"]
    metrics = [metric for metric in COMPARED if all(column_of(metric) in run.queries.column_names for group in runs.values() for run in group)]
    tests = len(metrics) * math.comb(len(runs), 2)
    draws = max(protocol["bootstrap"], math.ceil(4 * tests / level))
    found: list[tuple[str, str, str, Comparison, Average | None]] = []
    order = list(runs)
    for metric in metrics:
        table = read_runs([run.query_file for group in runs.values() for run in group], column_of(metric))
        values = dict(zip(runs, np.split(table.values, np.cumsum([len(group) for group in runs.values()])[:-1]), strict=True))
        if metric == HEADLINE:
            order.sort(key=lambda method: -np.nanmean(values[method]))
        for first, second in combinations(order, 2):
            result = compare(values[second], values[first], table.label, draws, protocol["confidence"], protocol["seed"])
            differences = np.nanmean(values[first], axis=1) - np.nanmean(values[second], axis=1)
            seeds = over_seeds(differences, protocol["confidence"]) if len(differences) > 1 else None
            found.append((first, second, metric, result, seeds))
    adjusted = holm(np.array([result.p_value for *_, result, _ in found])).tolist() if found else []
    return [
        Pair(first, second, metric, result, p_value, seeds, level)
        for (first, second, metric, result, seeds), p_value in zip(found, adjusted, strict=True)
    ]


def comparison_section(pairs: list[Pair], shown: list[Shown]) -> dict[str, Any]:
    """The table of all pairs: a row for each, of the leading method first."""
    methods = {method.name: method for method in shown}
    names = list(dict.fromkeys((pair.first, pair.second) for pair in pairs))
    rows = [
        {
            "first": methods[first],
            "second": methods[second],
            "cells": [_cell(pair) for pair in pairs if (pair.first, pair.second) == (first, second)],
        }
        for first, second in names
    ]
    leading = sum(first == names[0][0] for first, _ in names) if len(names) > MANY else len(names)
    return {
        "metrics": [name_of(metric) for metric in dict.fromkeys(pair.metric for pair in pairs)],
        "rows": rows[:leading],
        "others": rows[leading:],
        "tests": len(pairs),
        "level": f"{pairs[0].level:.2g}" if pairs else "",
        "classes": f"{pairs[0].found.classes:,}" if pairs else "",
    }


def _cell(pair: Pair) -> dict[str, str]:
    said = f"{pair.ahead} ahead" if pair.ahead else "open"
    if pair.ahead and pair.seeds is not None:
        said += ", seeds agree" if pair.over_seeds else ", seeds open"
    return {
        "metric": pair.metric,
        "difference": signed_points(pair.found.difference),
        "interval": f"{signed_points(pair.found.low)} to {signed_points(pair.found.high)}",
        "seeds": f"{signed_points(pair.seeds.low)} to {signed_points(pair.seeds.high)}" if pair.seeds else "",
        "p": probability(pair.adjusted),
        "said": said,
        "ahead": pair.ahead or "",
    }


def seeds_section(inputs: Inputs, dataset: str, found: Results, shown: list[Shown], metrics: list[str]) -> list[dict[str, Any]]:
    """Mean, deviation and t interval over seeds of every method's selected network; nothing with one seed.

    Student's t knows no bounds: of the interval, what lies within 0 and 100 percent is shown, and `cut` says where there was more.
    """
    if len(inputs.seeds) < 2:
        return []
    confidence = inputs.of(dataset)[0].protocol["confidence"]
    rows = []
    for method in shown:
        cells = []
        for metric in metrics:
            value = found.of(method.name, metric)
            average = None if value is None else over_seeds(np.array(value.each), confidence)
            cells.append(
                {
                    "metric": metric,
                    "value": f"{percent(average.mean)} ± {percent(average.deviation)}" if average else "–",
                    "interval": span(max(average.low, 0.0), min(average.high, 1.0)) if average else "",
                    "cut": average is not None and (average.low < 0 or average.high > 1),
                }
            )
        rows.append({"method": method, "cells": cells, "cut": any(cell["cut"] for cell in cells)})
    return rows


def leader(pairs: list[Pair], method: str, metric: str) -> Leader | None:
    """What `metric` says of the leading `method` against each other one; over several seeds both intervals must say so. None: not compared."""
    own = [pair for pair in pairs if pair.metric == metric and method in (pair.first, pair.second)]
    if not own:
        return None
    sure = {(pair.second if pair.first == method else pair.first): pair.ahead == method and (pair.seeds is None or pair.over_seeds) for pair in own}
    margin = None
    if len(own) == 1:
        found, sign = own[0].found, 1 if own[0].first == method else -1
        low, high = sorted((sign * found.low, sign * found.high))
        margin = sign * found.difference, low, high
    return Leader([name for name, ahead in sure.items() if ahead], [name for name, ahead in sure.items() if not ahead], margin)
