"""Our numbers in a table of a study, over the seeds of the run."""

import statistics
from typing import Any

from unseen.report.report_data import ReportData
from unseen.report.sections.published import ENSEMBLES, OurNumbers, numbers_of
from unseen.report.study_cells import OF_HISTORY, Column, Ours, is_plain
from unseen.report.summary import Summary


class Numbers:
    """Our numbers of a data set."""

    def __init__(self, report_data: ReportData, dataset: str, summary: Summary) -> None:
        self.report_data, self.dataset, self.summary = report_data, dataset, summary
        self._kinds: dict[tuple[str, tuple[str, ...]], dict[str, OurNumbers]] = {}

    def kinds(self, method: str, metrics: tuple[str, ...]) -> dict[str, OurNumbers]:
        """The numbers of each kind, with their conditions."""
        key = (method, metrics)
        if key not in self._kinds:
            numbers = numbers_of(self.report_data, self.dataset, self.summary, method, metrics)
            self._kinds[key] = {entry.kind: entry for entry in numbers}
        return self._kinds[key]

    def of(self, method: str, column: Column) -> Ours | None:
        """Mean and deviation over the seeds; None if the run has no such metric."""
        if column.kind in ENSEMBLES.values():
            ensemble = self.report_data.ensembles.get((self.dataset, method), {})
            name = f"{column.kind}_{column.metric}"
            if name not in ensemble:
                return None
            return Ours(100 * ensemble[name], 100 * ensemble[f"{name}_std"])
        if is_plain(column.metric):
            values = self._plain(method, column.metric)
            if not values:
                return None
            return Ours(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
        value = self.summary.of(method, column.metric, column.kind)
        if value is None:
            return None
        return Ours(100 * value.value, None if value.deviation is None else 100 * value.deviation)

    def _plain(self, method: str, metric: str) -> list[float]:
        """A metric that is not a share, of each seed."""
        if metric in OF_HISTORY:
            histories = [run.history for run in self.report_data.of(self.dataset, method)]
            return [
                statistics.fmean(row[metric] for row in history)
                for history in histories
                if history and all(metric in row for row in history)
            ]
        rows = [entry["row"] for entry in self.report_data.analysed(self.dataset, method)]
        return [row[metric] for row in rows if row.get(metric) is not None]

    def recipe(self, method: str) -> dict[str, Any]:
        recipe: dict[str, Any] = self.report_data.of(self.dataset, method)[0].recipe["recipe"]
        return recipe
