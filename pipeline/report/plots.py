"""The files of data/plots for `dvc plots` and `dvc metrics`: one curve per file."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from unseen.report.report_data import ReportData
from unseen.runtime.sealed import write_sealed
from unseen.runtime.text import write_csv


def write_plots(data: ReportData, directory: Path) -> None:
    """recall/<data set>/<method>/<seed>.csv: k, recall. spectrum/<data set>/<method>/<seed>.csv: dimension,
    value (the singular values of the test embeddings, descending, over their sum). sweeps/<data
    set>/<method>.csv: trial, value (of the metric by which trials are compared). sweeps.json: that metric,
    the number of trials and the best values of each sweep.

    Landmark sets have no curve of recall: their queries have no first match.
    """
    for run in data.runs:
        if "first_positive" in run.queries.column_names:
            path = directory / "recall" / run.dataset / run.method / f"{run.seed}.csv"
            _write(path, ("k", "recall"), recall_curve(run.queries))
    for row, curves in ((entry["row"], entry["curves"]) for entry in data.analysis):
        if row["network"] == "selected":
            path = directory / "spectrum" / row["dataset"] / row["method"] / f"{row['seed']}.csv"
            _write(path, ("dimension", "value"), enumerate(curves["spectrum"], 1))
    best: dict[str, dict[str, object]] = {}
    for sweep in data.sweeps:
        metric = f"best_{sweep.best['metric']}"
        values = [
            (trial["trial"], trial[metric]) for trial in sweep.trials if trial[metric] not in ("", None)
        ]
        _write(directory / "sweeps" / sweep.dataset / f"{sweep.method}.csv", ("trial", "value"), values)
        of_best = {metric: sweep.best["value"], "trials": len(sweep.trials), **sweep.best["values"]}
        best.setdefault(sweep.dataset, {})[sweep.method] = of_best
    if not best:  # DVC warns where a folder of dvc.yaml is missing
        _write(directory / "sweeps/none.csv", ("trial", "value"), [])
    write_sealed(directory / "sweeps.json", best)


def recall_curve(queries: pa.Table) -> list[tuple[int, float]]:
    """(K, Recall@K) for K = 1, 2, 4, ... as far as ranks are known. queries: a table of tables.py."""
    first = queries["first_positive"].drop_null().to_numpy()
    count = np.count_nonzero(queries["relevant"].to_numpy())
    ks = 2 ** np.arange(int(first.max(initial=0)).bit_length())
    return [(int(k), round(float(np.count_nonzero(first <= k) / count), 10)) for k in ks]


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, [header, *rows])
