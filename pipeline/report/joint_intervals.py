"""The interval over classes of a mean over seeds, from the per-query files of the runs.

    m_q = 1/S sum_s m_sq,    average* = sum_c w_c sum_{q in c} m_q / sum_c w_c n_c  =  1/S sum_s average*_s      w_c: times that class c was drawn

so that a resample draws the same classes for every seed, and the percentiles of average* (retrieval/bootstrap.py) are an interval of the number
that is printed. The mean of the seeds' own intervals is an interval of nothing. Resamples are those of the evaluation: with one seed, its interval.

It is about these trainings and other classes; what other trainings would give, deviation and t interval over the seeds say.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int64

from pipeline.evaluation.statistics.bootstrap import class_intervals
from pipeline.evaluation.tables import file_of, read_runs
from pipeline.report.inputs import Run
from pipeline.report.summary import CLASS_MEAN, NETWORKS, PREFIX, own_metrics
from pipeline.runtime.errors import UserError

LANDMARKS = "benchmark"  # a column of the per-query files of sets with a ground truth of their own
_COLUMNS = {"map_at_r": "ap_at_r", "map": "ap"}
_OF_BENCHMARK = re.compile(r"(?P<benchmark>.+)_(?P<level>easy|medium|hard)_(?:map|mp_at_(?P<k>\d+))")
_ROUNDING = 1e-6  # metrics files hold ten decimals

Group = tuple[Int64[np.ndarray, "U"], dict[str, Float64[np.ndarray, "S U"]]]  # labels of what is drawn together, values of S runs by metric


def column_of(metric: str) -> str:
    """The column of the per-query files whose mean over queries the metric is."""
    return _COLUMNS.get(metric, metric)


def joint_intervals(runs: Sequence[Run]) -> dict[str, tuple[float, float]]:
    """Lower and upper end of every metric that has an interval in the metrics files, by its name there, for S runs of one method.

    Raises UserError where a per-query file is missing or damaged, is of other queries than those of the other seeds, lacks a metric, or does not
    average to what its metrics file says.
    """
    protocol = runs[0].protocol
    found = {}
    for network in NETWORKS:
        prefix = PREFIX[network]
        names = [name for name in own_metrics(runs[0].metrics) if all(f"{prefix}{name}_low" in run.metrics for run in runs)]
        if not names:
            continue
        files = [run.query_file if network == NETWORKS[0] else run.query_file.with_name(file_of(network)) for run in runs]
        groups = _by_query(runs, files, names) if LANDMARKS in runs[0].queries.column_names else _by_class(runs, files, names)
        for labels, values in groups:
            _are_of_the_metrics(runs, files, prefix, values)
            means = np.stack([of_runs.mean(axis=0) for of_runs in values.values()], axis=1)
            ends = class_intervals(means, labels, protocol["bootstrap"], protocol["confidence"], protocol["seed"])
            found.update({prefix + name: (float(low), float(high)) for name, low, high in zip(values, *ends, strict=True)})
    return found


def _by_class(runs: Sequence[Run], files: Sequence[Path], names: Sequence[str]) -> Iterator[Group]:
    """All scored queries by class; then, where means over classes are asked for, one value for each class."""
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


def _by_query(runs: Sequence[Run], files: Sequence[Path], names: Sequence[str]) -> Iterator[Group]:
    """The queries of each benchmark that have something to find at each level; there queries are drawn, as in the evaluation."""
    benchmarks = np.array(runs[0].queries[LANDMARKS].to_pylist())
    groups: dict[tuple[str, str], dict[str, Float64[np.ndarray, "S U"]]] = {}
    for name in names:
        found = _OF_BENCHMARK.fullmatch(name)
        if found is None:
            raise UserError(f"{name} of {runs[0].query_file.parent} is no metric of a benchmark.", "Run `dvc repro` to evaluate the run anew.")
        column = f"{found['level']}_ap" if found["k"] is None else f"{found['level']}_precision_at_{found['k']}"
        values = read_runs(files, column).values[:, benchmarks == found["benchmark"]]
        groups.setdefault((found["benchmark"], found["level"]), {})[name] = values[:, ~np.isnan(values[0])]
    for columns in groups.values():
        yield np.arange(len(next(iter(columns.values()))[0])), columns


def _are_of_the_metrics(runs: Sequence[Run], files: Sequence[Path], prefix: str, values: Mapping[str, Float64[np.ndarray, "S U"]]) -> None:
    """Metrics are tracked by git and per-query files by DVC: one may be there in another version than the other."""
    for name, of_runs in values.items():
        for run, file, mean in zip(runs, files, of_runs.mean(axis=1).tolist(), strict=True):
            if not abs(mean - run.metrics[prefix + name]) <= _ROUNDING:
                raise UserError(
                    f"{file} averages to {prefix}{name} {mean:.6f}, but the metrics of seed {run.seed} of {run.method} say "
                    f"{run.metrics[prefix + name]:.6f}: they are not of one evaluation.",
                    "Run `dvc checkout` for the files of this commit, or `dvc repro` to evaluate anew.",
                )
