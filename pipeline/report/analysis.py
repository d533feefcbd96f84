"""The analysis stage's numbers and curves of one data set, numbers as means over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.evaluation.analysis.analyze import COLUMNS
from unseen.report.report_data import ReportData
from unseen.report.words import decimals, percent, span
from unseen.runtime.text import write_csv

NETWORKS = ("selected", "untrained")
Means = Mapping[str, float | None]


@dataclass(frozen=True)
class Analysis:
    """Of the methods that were analysed."""

    means: dict[tuple[str, str], Means]  # (method, network) -> numbers
    rows: dict[str, list[dict[str, Any]]]  # of each method's selected network, one per seed
    curves: dict[str, list[dict[str, Any]]]  # likewise
    floored: list[str]  # methods with singular values below the resolution of float32

    @property
    def first_curves(self) -> dict[str, dict[str, Any]]:
        """The curves of the first seed."""
        return {method: group[0] for method, group in self.curves.items()}

    @property
    def selected_means(self) -> dict[str, Means]:
        return {method: self.means[method, "selected"] for method in self.rows}


def read_analysis(report_data: ReportData, dataset: str) -> Analysis:
    """The entries of the data set, in the order of the methods."""
    groups = {
        (method, network): entries
        for method in report_data.methods
        for network in NETWORKS
        if (entries := report_data.analysed(dataset, method, network))
    }
    selected = {method: group for (method, network), group in groups.items() if network == "selected"}
    rows = [entry["row"] for entry in report_data.analysis if entry["row"]["dataset"] == dataset]
    return Analysis(
        means={key: means_over_seeds([entry["row"] for entry in group]) for key, group in groups.items()},
        rows={method: [entry["row"] for entry in group] for method, group in selected.items()},
        curves={method: [entry["curves"] for entry in group] for method, group in selected.items()},
        floored=sorted({row["method"] for row in rows if row["floored_singular_values"]}),
    )


def means_over_seeds(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """The mean of each number over seeds; None where a seed lacks it.

    `<name>_std` is a deviation over splits. It becomes the deviation over the splits of all seeds: the root
    of the mean variance within seeds plus the variance of the means between them. All seeds have the same
    number of splits.
    """
    names = {name for row in rows for name, value in row.items() if isinstance(value, int | float)}
    columns = {
        name: [row[name] for row in rows] for name in names if all(row.get(name) is not None for row in rows)
    }
    means: dict[str, float | None] = {
        name: statistics.fmean(columns[name]) if name in columns else None for name in names
    }
    for name in columns:
        mean = name.removesuffix("_std")
        if name != mean and mean in columns:
            within = statistics.fmean(value**2 for value in columns[name])
            means[name] = (within + statistics.pvariance(columns[mean])) ** 0.5
    return means


def match_errors(points: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """FNMR at FMR (pipeline/evaluation/analysis/verification.py) as cells: one row for each operating
    point."""
    return [
        {
            "rate": f"{100 * point['rate']:g}",
            "similarity": decimals(point["threshold"]),
            "fnmr": percent(point["fnmr"]),
            "interval": span(point["low"], point["high"]),
        }
        for point in points
    ]


def write_analysis(report_data: ReportData, path: Path) -> None:
    """Writes the measures of all runs, a row for each run and network, as CSV. An undefined measure is an
    empty cell."""
    rows = (network["row"] for network in report_data.analysis)
    write_csv(path, [COLUMNS, *([row[name] for name in COLUMNS] for row in rows)])
