"""The paired comparison of all methods of a data set on the same queries.

Queries, intervals and tests are those of pipeline/evaluation/statistics/comparison.py, drawn as the
evaluation's protocol declares. All pairs and metrics of a data set are one family: Holm's method adjusts
their p values together, and the number of sign flips grows with the family so that the smallest p value can
be significant.

A difference is significant if its interval excludes zero and its adjusted p value is at most 1 - confidence.
This refers to these trainings on other classes. Whether other trainings agree needs several seeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from pipeline.evaluation.statistics.comparison import Comparison, compare_pairs
from pipeline.evaluation.statistics.holm import holm
from pipeline.evaluation.statistics.seeds import Average, over_seeds
from pipeline.evaluation.tables import read_runs
from pipeline.report.joint_intervals import column_of
from pipeline.report.report_data import ReportData
from pipeline.report.summary import HEADLINE

COMPARED = (HEADLINE, "recall_at_1")
MAX_RESAMPLES = 10_000  # of the intervals; p values need more draws with more pairs, intervals do not


@dataclass(frozen=True)
class Pair:
    """`first` minus `second` in one metric."""

    first: str
    second: str
    metric: str
    comparison: Comparison
    adjusted: float  # p value
    seeds: Average | None  # of the differences of the seeds, with two seeds or more
    level: float  # 1 - confidence

    @property
    def better(self) -> str | None:
        """The significantly better method of these trainings, None if the difference is not significant."""
        if self.adjusted > self.level or self.comparison.low <= 0 <= self.comparison.high:
            return None
        return self.first if self.comparison.low > 0 else self.second

    @property
    def holds_over_seeds(self) -> bool:
        """Whether the interval over seeds excludes zero on the same side; False with one seed."""
        if self.seeds is None:
            return False
        return self.seeds.low > 0 if self.better == self.first else self.seeds.high < 0


@dataclass(frozen=True)
class Lead:
    """The paired comparison of the method with the highest headline metric with every other method."""

    better_than: Sequence[str]
    not_significant: Sequence[str]  # methods from which it does not differ significantly
    margin: tuple[float, float, float] | None = None  # difference and interval, with one other method


def compare_methods(report_data: ReportData, dataset: str) -> list[Pair]:
    """All pairs of methods in each metric of COMPARED that the per-query files have.

    The method with the higher headline metric is the first of a pair. Raises UserError if the methods have
    different queries.
    """
    runs = {method: report_data.of(dataset, method) for method in report_data.methods}
    protocol = report_data.of(dataset)[0].protocol
    level = 1 - protocol["confidence"]
    columns = [set(run.queries.column_names) for group in runs.values() for run in group]
    metrics = [metric for metric in COMPARED if all(column_of(metric) in names for names in columns)]
    tests = len(metrics) * math.comb(len(runs), 2)
    flips = max(protocol["bootstrap"], math.ceil(4 * tests / level))
    resamples = max(protocol["bootstrap"], min(flips, MAX_RESAMPLES))
    order = list(runs)
    compared: list[tuple[str, str, str, Comparison, Average | None]] = []
    for metric in metrics if tests else ():
        table = read_runs([run.query_file for group in runs.values() for run in group], column_of(metric))
        ends = np.cumsum([len(group) for group in runs.values()])
        values = dict(zip(runs, np.split(table.values, ends[:-1]), strict=True))
        if metric == HEADLINE:
            order.sort(key=lambda method: -np.nanmean(values[method]))
        pairs = list(combinations(range(len(order)), 2))
        comparisons = compare_pairs(
            [values[method] for method in order],
            [(second, first) for first, second in pairs],
            table.label,
            resamples,
            flips,
            protocol["confidence"],
            protocol["seed"],
        )
        averages = {method: np.nanmean(values[method], axis=1) for method in order}
        for (first, second), comparison in zip(pairs, comparisons, strict=True):
            differences = averages[order[first]] - averages[order[second]]
            seeds = over_seeds(differences, protocol["confidence"]) if len(differences) > 1 else None
            compared.append((order[first], order[second], metric, comparison, seeds))
    adjusted = holm(np.array([result.p_value for *_, result, _ in compared])).tolist() if compared else []
    return [
        Pair(first, second, metric, result, p_value, seeds, level)
        for (first, second, metric, result, seeds), p_value in zip(compared, adjusted, strict=True)
    ]


def lead_of(pairs: Sequence[Pair], method: str, metric: str) -> Lead | None:
    """The pairs of `method` in `metric`; None if it was not compared.

    With several seeds a difference counts as significant only if both intervals exclude zero.
    """
    of_method = [pair for pair in pairs if pair.metric == metric and method in (pair.first, pair.second)]
    if not of_method:
        return None
    significant = {
        (pair.second if pair.first == method else pair.first): pair.better == method
        and (pair.seeds is None or pair.holds_over_seeds)
        for pair in of_method
    }
    margin = None
    if len(of_method) == 1:
        comparison, sign = of_method[0].comparison, 1 if of_method[0].first == method else -1
        low, high = sorted((sign * comparison.low, sign * comparison.high))
        margin = sign * comparison.difference, low, high
    return Lead(
        [other for other, better in significant.items() if better],
        [other for other, better in significant.items() if not better],
        margin,
    )
