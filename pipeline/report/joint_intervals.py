"""The interval over classes of a mean over seeds, from the per-query files of the runs.

It is the interval (pipeline/evaluation/statistics/intervals.py) of m_q = 1/S sum_s m_sq for query q. With one
seed it equals the interval of the evaluation. The mean of the intervals of the seeds would be no interval of
the mean.

The interval refers to these trainings on other classes. The t interval over seeds refers to other trainings.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from unseen.evaluation.statistics.intervals import class_intervals
from unseen.evaluation.tables import file_of, read_runs
from unseen.report.report_data import RunResults
from unseen.report.summary import CLASS_MEAN, NETWORKS, PREFIX, own_metrics

LANDMARKS = "benchmark"  # a column of the per-query files of landmark sets
_COLUMNS = {"map_at_r": "ap_at_r", "map": "ap"}
_OF_BENCHMARK = re.compile(r"(?P<benchmark>.+)_(?P<level>easy|medium|hard)_(?:map|mp_at_(?P<k>\d+))")

# Labels of U queries or classes, and the values of S runs by metric.
Group = tuple[Int64[np.ndarray, "U"], dict[str, Float64[np.ndarray, "S U"]]]


def column_of(metric: str) -> str:
    """The column of the per-query files whose mean over queries is the metric."""
    return _COLUMNS.get(metric, metric)


def joint_intervals(runs: Sequence[RunResults]) -> dict[str, tuple[float, float]]:
    """Lower and upper end of every metric with an interval in the metrics files, by its name there, of S runs
    of a method.

    Raises UserError if a per-query file is missing or damaged, has other queries than the files of the other
    seeds, or lacks a metric. It is of the evaluation of its metrics: the reader of runs compares digests.
    """
    intervals = {}
    for network in NETWORKS:
        prefix = PREFIX[network]
        names = [
            name
            for name in own_metrics(runs[0].metrics)
            if all(f"{prefix}{name}_low" in run.metrics for run in runs)
        ]
        if not names:
            continue
        files = [
            run.query_file if network == NETWORKS[0] else run.query_file.with_name(file_of(network))
            for run in runs
        ]
        read = _by_query if LANDMARKS in runs[0].queries.column_names else _by_class
        for labels, values in read(runs, files, names):
            means = np.stack([of_runs.mean(axis=0) for of_runs in values.values()], axis=1)
            lows, highs = class_intervals(means, labels, runs[0].protocol["confidence"]) or ((), ())
            for name, low, high in zip(values, lows, highs, strict=False):
                intervals[prefix + name] = (float(low), float(high))
    return intervals


def _by_class(runs: Sequence[RunResults], files: Sequence[Path], names: Sequence[str]) -> Iterator[Group]:
    """All scored queries by class, then one value per class for the metrics that are means over classes."""
    lone = runs[0].queries["relevant"].to_numpy() == 0
    labels = runs[0].queries["label"].to_numpy()[~lone]
    values = {}
    for name in (name for name in names if not name.startswith(CLASS_MEAN)):
        if name == "precision_at_1":
            values[name] = (read_runs(files, "first_positive").values[:, ~lone] == 1).astype(np.float64)
        else:
            values[name] = read_runs(files, column_of(name)).values[:, ~lone]
    yield labels, values
    classes, member, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    of_class = {
        name: np.stack([np.bincount(member, row) / sizes for row in values[name.removeprefix(CLASS_MEAN)]])
        for name in names
        if name.startswith(CLASS_MEAN)
    }
    if of_class:
        yield classes, of_class


def _by_query(runs: Sequence[RunResults], files: Sequence[Path], names: Sequence[str]) -> Iterator[Group]:
    """The queries of each benchmark with a relevant image at each level, each a class as in the
    evaluation."""
    benchmarks = np.array(runs[0].queries[LANDMARKS].to_pylist())
    groups: dict[tuple[str, str], dict[str, Float64[np.ndarray, "S U"]]] = {}
    for name in names:
        match = _OF_BENCHMARK.fullmatch(name)
        assert match is not None, "evaluate_landmarks names no other metric"
        measure = "ap" if match["k"] is None else f"precision_at_{match['k']}"
        values = read_runs(files, f"{match['level']}_{measure}").values[:, benchmarks == match["benchmark"]]
        groups.setdefault((match["benchmark"], match["level"]), {})[name] = values[:, ~np.isnan(values[0])]
    for columns in groups.values():
        yield np.arange(len(next(iter(columns.values()))[0])), columns
