"""The paired comparison of all methods of a data set on the same queries.

Queries, intervals and tests are those of pipeline/evaluation/statistics/comparison.py, drawn as the
evaluation's protocol declares. All pairs and metrics of a data set are one family: Holm's method adjusts
their p values together, and the number of sign flips grows with the family so that the smallest p value can
be significant.

One rule decides the verdict, the bold values and the results of pairs. A method is better than another if
the interval over classes excludes zero, the adjusted p value is at most 1 - confidence, and, with several
seeds, the interval over seeds excludes zero on the same side. The difference is significant if there are
several seeds: one training of each method excludes the variation between trainings, and the difference is
only distinct from zero over these classes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unseen.evaluation.statistics.comparison import Comparison, compare_pairs
from unseen.evaluation.statistics.holm import holm
from unseen.evaluation.statistics.seeds import Average, over_seeds
from unseen.evaluation.tables import read_runs
from unseen.report.joint_intervals import column_of
from unseen.report.report_data import ReportData
from unseen.report.summary import HEADLINE

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
        """The better method by the rule above, None if there is none."""
        first, second = (self._over_classes(sign) and self._over_seeds(sign) for sign in (1, -1))
        return self.first if first else self.second if second else None

    @property
    def differs_over_classes(self) -> bool:
        """Whether the rule holds without the interval over seeds."""
        return self._over_classes(1) or self._over_classes(-1)

    @property
    def is_significant(self) -> bool:
        return self.better is not None and self.seeds is not None

    def _over_classes(self, sign: int) -> bool:
        """Whether `first` (sign 1) or `second` (-1) is better over classes."""
        bound = self.comparison.low if sign > 0 else -self.comparison.high
        return self.adjusted <= self.level and bound > 0

    def _over_seeds(self, sign: int) -> bool:
        """Whether the same method is better over seeds; True with one seed."""
        return self.seeds is None or (self.seeds.low if sign > 0 else -self.seeds.high) > 0


@dataclass(frozen=True)
class Lead:
    """The paired comparison of the method with the highest value of a metric with every other method."""

    better_than: Sequence[str]
    not_better_than: Sequence[str]
    has_seeds: bool  # several; without them no difference is significant
    margin: tuple[float, float, float] | None = None  # difference and interval, with one other method

    @property
    def is_significant(self) -> bool:
        """Whether its differences from all other methods are significant."""
        return self.has_seeds and not self.not_better_than


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
    """The pairs of `method` in `metric`; None if it was not compared."""
    of_method = [pair for pair in pairs if pair.metric == metric and method in (pair.first, pair.second)]
    if not of_method:
        return None
    is_better = {
        (pair.second if pair.first == method else pair.first): pair.better == method for pair in of_method
    }
    margin = None
    if len(of_method) == 1:
        comparison, sign = of_method[0].comparison, 1 if of_method[0].first == method else -1
        low, high = sorted((sign * comparison.low, sign * comparison.high))
        margin = sign * comparison.difference, low, high
    return Lead(
        [other for other, better in is_better.items() if better],
        [other for other, better in is_better.items() if not better],
        all(pair.seeds is not None for pair in of_method),
        margin,
    )
