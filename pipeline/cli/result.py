"""The result of a run in a few lines: the verdict of the report, the headline numbers, its path."""

from collections.abc import Iterator
from pathlib import Path

from unseen.config.inputs import ReportInputs, resolved
from unseen.report.report_data import read_json, read_sealed
from unseen.report.summary import FLOOR, Summary, Value, summarize
from unseen.report.words import interval, name_of, percent
from unseen.runtime.text import aligned

REPORT = Path("data/report/index.html")
VERDICTS = Path("data/report/verdict.json")  # plain text by data set


def result() -> list[str]:
    """The lines. Raises UserError if a file of the run is missing.

    One row per data set and method: Recall@1 and the metric by which the report compares methods, in percent,
    means over the seeds; the interval with one seed; and the features before training.
    """
    axes = resolved(ReportInputs, "report").settings.run
    verdicts = read_json(VERDICTS)
    lines = [verdicts[dataset] for dataset in axes.datasets]
    for dataset in axes.datasets:
        files = [
            (method, read_sealed(Path("data/metrics"), "evaluate", dataset, method, str(seed)))
            for method in axes.methods
            for seed in axes.seeds
        ]
        lines += ["", *_table(dataset, summarize(files, axes.methods))]
    return [*lines, "", f"report: {REPORT}"]


def _table(dataset: str, summary: Summary) -> Iterator[str]:
    metrics = [name for name in summary.metrics if name == "recall_at_1" and name != summary.headline]
    metrics.append(summary.headline)
    rows = [(dataset, *map(name_of, metrics), "features before training")]
    for method in summary.methods:
        cells = [_cell(summary.of(method, metric)) for metric in metrics]
        rows.append((method, *cells, _cell(summary.of(method, summary.headline, FLOOR))))
    return aligned(rows)


def _cell(value: Value | None) -> str:
    if value is None:
        return "–"
    bounds = f" ({interval(value)})" if interval(value) else ""
    return f"{percent(value.value)}{bounds}"
