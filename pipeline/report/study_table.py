"""The table of a study on a data set: printed numbers, ours, their difference, and the rank correlation of
the order.

If the paper prints numbers for the data set, the lines are the printed rows, and the columns the printed
columns. Otherwise the lines are the rows of the study, and the columns are our metrics and, for the order of
the rows, the printed column of each data set of the paper.

    rho = Pearson correlation of the ranks of the printed numbers and of our means (Spearman)
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.stats import spearmanr

from pipeline.config.inputs import StudyInputs, StudyRowInputs
from pipeline.published import PLAIN, Number, Row
from pipeline.published.model import rows as printed_rows
from pipeline.report.recipes import setting, text
from pipeline.report.report_data import ReportData
from pipeline.report.sections.published import ENSEMBLES, OurNumbers, differences, numbers_of, unstated
from pipeline.report.summary import HEADLINE, Summary, summarize
from pipeline.report.words import name_of
from pipeline.studies.catalogue import printed_key

_OF_HISTORY = ("gradient_covariance", "direction_covariance")  # means over the steps of a training


@dataclass(frozen=True)
class Ours:
    """Our value over the seeds, in percent, or as it is for a metric that is not a share."""

    value: float
    deviation: float | None  # None with one seed


@dataclass(frozen=True)
class Column:
    """A printed metric, one of ours, or both."""

    metric: str
    kind: str = "selected"  # of our numbers, as in sections/published.py
    printed_for: str = ""  # another data set, for which the paper prints the column; then ours are left out

    @property
    def title(self) -> str:
        kind = "" if self.kind == "selected" else f"{self.kind} "
        return f"{self.printed_for}: {kind}{name_of(self.metric)}" if self.printed_for else (
            f"{kind}{name_of(self.metric)}"
        )  # fmt: skip


@dataclass(frozen=True)
class Cell:
    printed: Number | None
    ours: Ours | None

    @property
    def difference(self) -> float | None:
        """Ours minus the printed number; None without a reliable one."""
        if self.printed is None or self.ours is None or not self.printed.reliable:
            return None
        return self.ours.value - self.printed.value


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    label: str
    method: str | None  # in run.methods; None: printed, and not trained
    cells: tuple[Cell, ...]
    differences: tuple[str, ...] = ()  # conditions
    unstated: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rank:
    """Rank correlation of a printed column with our numbers over `rows` rows."""

    column: Column
    rho: float
    rows: int


@dataclass(frozen=True)
class Point:
    """A row in the chart: the values of its axes."""

    series: str
    place: tuple[float, ...]
    ours: Ours
    printed: float | None


@dataclass(frozen=True)
class Gain:
    """A row minus its baseline, relative to the baseline, in percent; None without both numbers."""

    label: str
    baseline: str
    ours: float | None
    printed: float | None


@dataclass(frozen=True)
class StudyTable:
    study: StudyInputs
    dataset: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    ranks: tuple[Rank, ...]
    points: tuple[Point, ...]
    is_printed: bool  # whether the paper prints numbers for the data set
    gains: dict[Column, tuple[Gain, ...]] = field(default_factory=dict)  # of the columns of study.metric


def is_plain(metric: str) -> bool:
    """Whether a metric is not a share."""
    return metric in PLAIN or metric in _OF_HISTORY


def study_table(report_data: ReportData, dataset: str, study: StudyInputs) -> StudyTable:
    """The table of a study that the run covers."""
    methods = list(dict.fromkeys(row.method for row in study.rows))
    summary = summarize(
        [(run.method, run.metrics) for run in report_data.of(dataset) if run.method in methods], methods
    )
    printed = [row for row in _printed(study) if row.dataset == dataset]
    table = _Numbers(report_data, dataset, summary)
    if printed:
        columns = tuple(dict.fromkeys(column for row in printed for column in _columns(row)))
        lines = _printed_lines(table, study, printed, columns)
    else:
        columns = _own_columns(study, summary)
        lines = _own_lines(table, study, columns)
    return StudyTable(
        study, dataset, columns, lines, _ranks(columns, lines, study.metric), _points(table, study, printed),
        bool(printed), _gains(study, columns, lines),
    )  # fmt: skip


class _Numbers:
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
        if metric in _OF_HISTORY:
            histories = [run.history for run in self.report_data.of(self.dataset, method)]
            return [
                statistics.fmean(row[metric] for row in history)
                for history in histories
                if history and all(metric in row for row in history)
            ]
        rows = [entry["row"] for entry in self.report_data.analysis]
        cell = (self.dataset, method, "selected")
        return [
            row[metric]
            for row in rows
            if (row["dataset"], row["method"], row["network"]) == cell
            and row["seed"] in self.report_data.seeds
            and row.get(metric) is not None
        ]

    def recipe(self, method: str) -> dict[str, Any]:
        recipe: dict[str, Any] = self.report_data.of(self.dataset, method)[0].recipe["recipe"]
        return recipe


def _printed(study: StudyInputs) -> list[Row]:
    """The printed rows of the study's table."""
    return [row for row in printed_rows() if (row.paper, row.table) == (study.paper, study.table)]


def _kind_of(row: Row) -> str:
    return ENSEMBLES.get(row.setting, "reduced" if row.reduced else "selected")


def _columns(row: Row) -> list[Column]:
    """The columns of a printed row. Reduced rows are in the columns of the others."""
    kind = ENSEMBLES.get(row.setting, "selected")
    return [Column(name, kind) for name in (*row.metrics, *row.unreadable)]


def _printed_lines(
    table: _Numbers, study: StudyInputs, printed: Sequence[Row], columns: tuple[Column, ...]
) -> tuple[Line, ...]:
    methods = {row.printed: row.method for row in study.rows if row.printed is not None}
    metrics = tuple(dict.fromkeys(column.metric for column in columns))
    groups: list[list[Row]] = []  # a line has the groups of columns of one printed row
    for row in printed:
        place = next((group for group in groups if _same_line(group, row)), None)
        if place is None:
            groups.append([row])
        else:
            place.append(row)
    lines = []
    printed_keys = set()
    for group in groups:
        first = group[0]
        key = printed_key(first.method, first.recipe) if first.method else None
        printed_keys.add(key)
        method = methods.get(key) if key else None
        numbers = {column: row.metrics.get(column.metric) for row in group for column in _columns(row)}
        cells = []
        for column in columns:
            kind = "reduced" if _kind_of(first) == "reduced" and column.kind == "selected" else column.kind
            ours = table.of(method, Column(column.metric, kind)) if method else None
            cells.append(Cell(numbers.get(column), ours))
        conditions: list[str] = []
        if method:
            kinds = table.kinds(method, metrics)
            for row in group:
                conditions += differences(row, kinds.get(_kind_of(row), kinds["selected"]))
        notes = tuple(dict.fromkeys(row.note for row in group if row.note))
        unknown = unstated(first) if method else ""
        label = first.name if first.method else f"{first.name} (not trained)"
        lines.append(Line(label, method, tuple(cells), tuple(dict.fromkeys(conditions)), unknown, notes))
    others = [row for row in study.rows if row.printed not in printed_keys]
    return (*lines, *_own_lines(table, study, columns, others))


def _same_line(group: Sequence[Row], row: Row) -> bool:
    """Whether a row is another group of columns of the printed row of `group`."""
    first = group[0]
    names = ("name", "method", "recipe", "reduced", "backbone", "size")
    settings = {other.setting for other in group}
    return row.setting not in settings and all(getattr(first, name) == getattr(row, name) for name in names)


def _own_columns(study: StudyInputs, summary: Summary) -> tuple[Column, ...]:
    """Our columns, then the printed columns of the same metric on other data sets."""
    own = [study.metric, *(name for name in ("recall_at_1", HEADLINE) if name in summary.metrics)]
    others = {
        (row.dataset, column)
        for row in _printed(study)
        for column in _columns(row)
        if column.metric == study.metric
    }
    references = sorted(
        (Column(column.metric, column.kind, dataset) for dataset, column in others),
        key=lambda column: (column.printed_for, column.kind),
    )
    return (*(Column(name) for name in dict.fromkeys(own)), *references)


def _own_lines(
    table: _Numbers,
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
    for other in _printed(study):
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


def _ranks(columns: tuple[Column, ...], lines: Sequence[Line], metric: str) -> tuple[Rank, ...]:
    """The rank correlation of each printed column over the lines with both numbers; none below three."""
    own = next((place for place, column in enumerate(columns) if column == Column(metric)), None)
    ranks = []
    for place, column in enumerate(columns):
        ours_at = own if column.printed_for else place
        if ours_at is None:
            continue
        pairs = [
            (number.value, ours.value)
            for line in lines
            if (number := line.cells[place].printed) is not None
            and number.reliable
            and (ours := line.cells[ours_at].ours) is not None
        ]
        printed, ours_values = ({pair[side] for pair in pairs} for side in (0, 1))
        if len(pairs) >= 3 and len(printed) > 1 and len(ours_values) > 1:
            ranks.append(Rank(column, float(spearmanr(pairs).statistic), len(pairs)))
    return tuple(ranks)


def _gains(
    study: StudyInputs, columns: tuple[Column, ...], lines: Sequence[Line]
) -> dict[Column, tuple[Gain, ...]]:
    """The relative differences of the rows from their baselines, for each column of `study.metric` with our
    numbers."""
    gains = {}
    for place, column in enumerate(columns):
        if column.metric != study.metric or column.printed_for or not study.baselines:
            continue
        cells = {line.label: line.cells[place] for line in lines}
        gains[column] = tuple(
            Gain(
                row,
                baseline,
                _relative(cells[row].ours, cells[baseline].ours),
                _relative(_reliable(cells[row]), _reliable(cells[baseline])),
            )
            for row, baseline in study.baselines.items()
        )
    return gains


def _reliable(cell: Cell) -> Number | None:
    return cell.printed if cell.printed is not None and cell.printed.reliable else None


def _relative(number: Ours | Number | None, baseline: Ours | Number | None) -> float | None:
    """100 (a - b) / b."""
    if number is None or baseline is None or not baseline.value:
        return None
    return 100 * (number.value - baseline.value) / baseline.value


def _points(table: _Numbers, study: StudyInputs, printed: Sequence[Row]) -> tuple[Point, ...]:
    """The points of the chart: the rows that have a number for every axis."""
    if not study.axes:
        return ()
    hidden = {*study.axes, *study.tied}
    keys = [
        {field: value for field, value in row.recipe.items() if field not in hidden} for row in study.rows
    ]
    varied = [
        field
        for field in dict.fromkeys(field for key in keys for field in key)
        if len({text(key.get(field, "")) for key in keys}) > 1
    ]
    several_methods = len({row.like for row in study.rows}) > 1
    numbers = {
        printed_key(row.method, row.recipe): row.metrics[study.metric].value
        for row in reversed(printed)
        if study.metric in row.metrics and row.metrics[study.metric].reliable
    }
    kind = next((_kind_of(row) for row in printed if study.metric in row.metrics), "selected")
    points = []
    for row in study.rows:
        recipe = table.recipe(row.method)
        place = [setting(recipe, field) for field in study.axes]
        ours = table.of(row.method, Column(study.metric, kind)) or table.of(row.method, Column(study.metric))
        if ours is None or not all(_is_number(value) for value in place):
            continue
        parts = [row.like] if several_methods else []
        parts += [_series_part(field, setting(recipe, field)) for field in varied]
        series = ", ".join(parts) or row.like
        printed_value = numbers.get(row.printed) if row.printed is not None else None
        points.append(Point(series, tuple(map(float, place)), ours, printed_value))
    return tuple(points)


def _series_part(field: str, value: Any) -> str:
    """`deit_small_patch16_224` for backbone.name, `dim 64` for dim."""
    return text(value) if field.endswith(".name") else f"{field.rpartition('.')[2]} {text(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
