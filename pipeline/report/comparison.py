"""The paired comparisons of the methods of a data set, by the one rule for "better"
(pipeline/evaluation/statistics/better.py).

The family of a data set contains all pairs of methods in all metrics of COMPARED, or all other methods
against `report.control`, or against the control of the study that the run is. Its verdicts decide the first
paragraph, the bold values and the results of pairs. The family of a study contains its rows against its
control, or against their baselines, in its metric: one with per-query values over classes and seeds, another
over seeds. The floor of a pair is that of its better method: the features before training, without a
projection.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unseen.config.inputs import StudyInputs
from unseen.evaluation.statistics.better import LEAST, Comparison, Verdict, compare, decide, flips_of
from unseen.evaluation.statistics.intervals import MIN_CLASSES
from unseen.evaluation.statistics.table import Table, of_queries
from unseen.evaluation.tables import read_runs
from unseen.report.joint_intervals import column_of
from unseen.report.report_data import ReportData
from unseen.report.summary import FLOOR, HEADLINE, Summary
from unseen.report.words import signed_points

COMPARED = (HEADLINE, "recall_at_1")


@dataclass(frozen=True)
class Pair:
    """`first` minus `second` in one metric. The verdict is that on `first`."""

    first: str
    second: str
    metric: str
    verdict: Verdict

    @property
    def better(self) -> str | None:
        """The better method, also over these classes alone; None if the verdict names none."""
        return {1: self.first, -1: self.second}.get(self.verdict.sign)


def compare_methods(report_data: ReportData, dataset: str, summary: Summary) -> list[Pair]:
    """The family of a data set: the metrics of COMPARED that the per-query files have.

    The method with the higher headline metric is the first of a pair; the control is the second. Raises
    UserError if the methods have different queries.
    """
    order, control = summary.ranked(), report_data.control
    chosen = list(combinations(order, 2))
    if control is not None:
        chosen = [(method, control) for method in order if method != control]
    return _family(report_data, dataset, summary, chosen, COMPARED)


def compare_rows(
    report_data: ReportData,
    dataset: str,
    summary: Summary,
    study: StudyInputs,
    by_seed: Callable[[str, str], Sequence[float]],
) -> dict[str, Pair]:
    """The family of a study on a data set, by the method of the row: the first of each pair. by_seed: the
    values of a method in a metric, for a metric without per-query values, which has verdicts with two seeds
    or more. Raises UserError as `compare_methods` does."""
    if study.metric in COMPARED:
        pairs = _family(report_data, dataset, summary, study.contrasts, [study.metric])
    else:
        confidence = report_data.of(dataset)[0].protocol["confidence"]
        pairs = _over_seeds(study.contrasts, study.metric, by_seed, confidence)
    return {pair.first: pair for pair in pairs}


def control_of(studies: Sequence[StudyInputs], methods: Sequence[str]) -> str | None:
    """The control of a run whose methods are the rows of one study; None for another run, and for a study
    with several baselines."""
    for study in studies:
        controls = {control for _, control in study.contrasts}
        if len(controls) == 1 and {row.method for row in study.rows} == set(methods):
            return controls.pop()
    return None


def _family(
    report_data: ReportData,
    dataset: str,
    summary: Summary,
    chosen: Sequence[tuple[str, str]],
    metrics: Sequence[str],
) -> list[Pair]:
    if not chosen:
        return []
    order = list(dict.fromkeys(method for pair in chosen for method in pair))
    runs = [report_data.of(dataset, method) for method in order]
    columns = [set(run.queries.column_names) for group in runs for run in group]
    family = [
        (first, second, metric)
        for metric in metrics
        if all(column_of(metric) in names for names in columns)
        for first, second in chosen
    ]
    protocol = runs[0][0].protocol
    comparisons: list[Comparison] = []
    for metric in dict.fromkeys(metric for *_, metric in family):
        queries = read_runs([run.query_file for group in runs for run in group], column_of(metric))
        table = of_queries(np.split(queries.values, len(order)), queries.label)
        places = [(order.index(second), order.index(first)) for first, second in chosen]
        flips = flips_of(len(family), protocol["confidence"])
        comparisons += compare(table, places, flips, protocol["confidence"], protocol["seed"])
    verdicts = decide(
        comparisons,
        [LEAST[metric] for *_, metric in family],
        [_floor(summary, *asked) for asked in family],
        protocol["confidence"],
    )
    return [Pair(*asked, verdict) for asked, verdict in zip(family, verdicts, strict=True)]


def _over_seeds(
    chosen: Sequence[tuple[str, str]],
    metric: str,
    by_seed: Callable[[str, str], Sequence[float]],
    confidence: float,
) -> list[Pair]:
    """The pairs in a metric of trainings; none with one seed, or without a value of each training."""
    order = list(dict.fromkeys(method for pair in chosen for method in pair))
    values = [by_seed(method, metric) for method in order]
    seeds = {len(of_method) for of_method in values}
    if len(seeds) != 1 or max(seeds) < 2:
        return []
    table = Table(np.array(values)[:, None, :, None], None)
    places = [(order.index(second), order.index(first)) for first, second in chosen]
    comparisons = compare(table, places, confidence=confidence)
    verdicts = decide(comparisons, [0.0] * len(chosen), [None] * len(chosen), confidence)
    return [Pair(*pair, metric, verdict) for pair, verdict in zip(chosen, verdicts, strict=True)]


def _floor(summary: Summary, first: str, second: str, metric: str) -> float | None:
    values = {method: summary.of(method, metric) for method in (first, second)}
    higher = max(values, key=lambda method: value.value if (value := values[method]) else 0.0)
    floor = summary.of(higher, metric, FLOOR)
    return None if floor is None else floor.value


Lead = Mapping[str, Verdict]  # the verdicts on one method, by the other method


def lead_of(pairs: Sequence[Pair], method: str, metric: str) -> Lead | None:
    """The verdicts on `method` in `metric`; None if it was not compared."""
    lead = {pair.second: pair.verdict for pair in pairs if (pair.metric, pair.first) == (metric, method)}
    lead |= {
        pair.first: pair.verdict.swapped() for pair in pairs if (pair.metric, pair.second) == (metric, method)
    }
    return lead or None


def bounds(comparison: Comparison, signed: Callable[[float | None], str] = signed_points) -> str:
    """The interval of a difference, or why there is none. signed: the text of a number."""
    if comparison.low is None or comparison.high is None:
        return f"no interval with fewer than {MIN_CLASSES} classes"
    return f"{signed(comparison.low)} to {signed(comparison.high)}"
