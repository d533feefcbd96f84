"""The analysis stage's numbers and curves of one data set, numbers as means over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unseen.report.report_data import ReportData

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
    entries = [entry for entry in report_data.analysis if entry["row"]["dataset"] == dataset]
    groups = {
        (method, network): [
            entry
            for entry in entries
            if (entry["row"]["method"], entry["row"]["network"]) == (method, network)
            and entry["row"]["seed"] in report_data.seeds
        ]
        for method in report_data.methods
        for network in NETWORKS
    }
    selected = {
        method: group for (method, network), group in groups.items() if group and network == "selected"
    }
    return Analysis(
        means={
            key: means_over_seeds([entry["row"] for entry in group]) for key, group in groups.items() if group
        },
        rows={method: [entry["row"] for entry in group] for method, group in selected.items()},
        curves={method: [entry["curves"] for entry in group] for method, group in selected.items()},
        floored=sorted(
            {entry["row"]["method"] for entry in entries if entry["row"]["floored_singular_values"]}
        ),
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
