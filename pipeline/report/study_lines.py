"""The columns and lines of a table of a study, and our numbers in it over the seeds of the run.

If the paper prints numbers for the data set, the lines are the printed rows, and the columns the printed
columns. Otherwise the lines are the rows of the study, and the columns are our metrics and, for the order of
the rows, the printed column of each data set of the paper.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from unseen.config.inputs import StudyInputs, StudyRowInputs
from unseen.experiments.catalogue import printed_key
from unseen.experiments.printed.model import Number, Row
from unseen.experiments.printed.model import rows as printed_rows
from unseen.report.report_data import ReportData
from unseen.report.sections.published import ENSEMBLES, UNITS, OurNumbers, differences, numbers_of, unstated
from unseen.report.study_cells import OF_HISTORY, Cell, Column, Line, Ours, is_plain
from unseen.report.summary import HEADLINE, Summary


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
            values = self.by_seed(method, column.metric)
            if not values:
                return None
            return Ours(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)
        value = self.summary.of(method, column.metric, column.kind)
        if value is None:
            return None
        ends = (value.deviation, value.low, value.high)
        return Ours(100 * value.value, *(None if end is None else 100 * end for end in ends))

    def by_seed(self, method: str, metric: str) -> list[float]:
        """A metric of each seed that has it."""
        runs = self.report_data.of(self.dataset, method)
        if not is_plain(metric):
            return [float(run.metrics[metric]) for run in runs if metric in run.metrics]
        if metric in OF_HISTORY:
            histories = [run.history for run in runs]
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


def printed_of(study: StudyInputs) -> list[Row]:
    """The printed rows of the study's table."""
    return [row for row in printed_rows() if (row.paper, row.table) == (study.paper, study.table)]


def kind_of(row: Row) -> str:
    """The kind of our numbers that are compared with a printed row."""
    return ENSEMBLES.get(row.setting, "reduced" if row.reduced else "selected")


def columns_of(row: Row) -> list[Column]:
    """The columns of a printed row. Reduced rows are in the columns of the others."""
    kind = ENSEMBLES.get(row.setting, "selected")
    return [Column(name, kind) for name in (*row.metrics, *row.unreadable)]


def printed_lines(
    table: Numbers, study: StudyInputs, printed: Sequence[Row], columns: tuple[Column, ...]
) -> tuple[Line, ...]:
    """A line per printed row, then one per row of the study that the paper does not print."""
    methods = {row.printed: row.method for row in study.rows if row.printed is not None}
    metrics = tuple(dict.fromkeys(column.metric for column in columns))
    of_sets: dict[str, list[Row]] = {}  # a row has one label on all data sets
    for row in printed_of(study):
        of_sets.setdefault(row.dataset, []).append(row)
    firsts = [group[0] for rows in of_sets.values() for group in _groups(rows)]
    labels = {printed_key(row.method, row.recipe): _label(row, firsts) for row in firsts if row.method}
    lines = []
    printed_keys = set()
    for group in _groups(printed):
        first = group[0]
        key = printed_key(first.method, first.recipe) if first.method else None
        printed_keys.add(key)
        method = methods.get(key) if key else None
        numbers = {column: row.metrics.get(column.metric) for row in group for column in columns_of(row)}
        cells = []
        for column in columns:
            kind = "reduced" if kind_of(first) == "reduced" and column.kind == "selected" else column.kind
            ours = table.of(method, Column(column.metric, kind)) if method else None
            cells.append(Cell(numbers.get(column), ours))
        conditions: list[str] = []
        if method:
            kinds = table.kinds(method, metrics)
            for row in group:
                conditions += differences(row, kinds.get(kind_of(row), kinds["selected"]))
        notes = tuple(dict.fromkeys(row.note for row in group if row.note))
        unknown = unstated(first) if method else ""
        label = _label(first, firsts)
        lines.append(Line(label, method, tuple(cells), tuple(dict.fromkeys(conditions)), unknown, notes))
    others = [
        row.model_copy(update={"label": labels.get(row.printed or "", row.label)})
        for row in study.rows
        if row.printed not in printed_keys
    ]
    return (*lines, *own_lines(table, study, columns, others))


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """A line of the table has the groups of columns of one printed row."""
    groups: list[list[Row]] = []
    for row in rows:
        place = next((group for group in groups if _same_line(group, row)), None)
        if place is None:
            groups.append([row])
        else:
            place.append(row)
    return groups


def _label(row: Row, rows: Sequence[Row]) -> str:
    """The name of a printed row, and the conditions that distinguish it from rows with the same name."""
    label, alike = row.name, [other for other in rows if other.name == row.name]
    for condition in ("dim", "backbone", "size"):
        value = getattr(row, condition)
        if value is not None and len({getattr(other, condition) for other in alike}) > 1:
            label += f", {value}{UNITS[condition]}"
            alike = [other for other in alike if getattr(other, condition) == value]
    return label if row.method else f"{label} (not trained)"


def _same_line(group: Sequence[Row], row: Row) -> bool:
    """Whether a row is another group of columns of the printed row of `group`."""
    first = group[0]
    names = ("name", "method", "recipe", "reduced", "backbone", "size")
    settings = {other.setting for other in group}
    return row.setting not in settings and all(getattr(first, name) == getattr(row, name) for name in names)


def own_columns(table: Numbers, study: StudyInputs) -> tuple[Column, ...]:
    """Our columns, those of ensembles first if each row has one, then the printed columns of the same metric
    on other data sets."""
    own = [study.metric, *(name for name in ("recall_at_1", HEADLINE) if name in table.summary.metrics)]
    of_rows = [table.report_data.ensembles.get((table.dataset, row.method), {}) for row in study.rows]
    ensembles = [
        Column(study.metric, kind)
        for kind in ENSEMBLES.values()
        if all(f"{kind}_{study.metric}" in ensemble for ensemble in of_rows)
    ]
    others = {
        (row.dataset, column)
        for row in printed_of(study)
        for column in columns_of(row)
        if column.metric == study.metric
    }
    references = sorted(
        (Column(column.metric, column.kind, dataset) for dataset, column in others),
        key=lambda column: (column.printed_for, column.kind),
    )
    return (*ensembles, *(Column(name) for name in dict.fromkeys(own)), *references)


def own_lines(
    table: Numbers,
    study: StudyInputs,
    columns: tuple[Column, ...],
    rows: Sequence[StudyRowInputs] | None = None,
) -> tuple[Line, ...]:
    """A line per row of the study."""
    return tuple(
        Line(
            row.label,
            row.method,
            tuple(
                Cell(
                    _reference(study, row, column) if column.printed_for else None,
                    None if column.printed_for else table.of(row.method, column),
                )
                for column in columns
            ),
        )
        for row in (study.rows if rows is None else rows)
    )


def _reference(study: StudyInputs, row: StudyRowInputs, column: Column) -> Number | None:
    """The number that the paper prints for a row on another data set."""
    for other in printed_of(study):
        if (
            row.printed is not None
            and other.dataset == column.printed_for
            and other.method is not None
            and not other.reduced
            and ENSEMBLES.get(other.setting, "selected") == column.kind
            and printed_key(other.method, other.recipe) == row.printed
        ):
            return other.metrics.get(column.metric)
    return None
