"""The table of a study on a data set: printed numbers, ours, their difference, the rank correlation of the
order, the gain of rows over their baselines, and the points of its chart.

The rank correlation is Spearman's: the Pearson correlation of the ranks of the printed numbers and of our
means.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from scipy.stats import spearmanr

from unseen.config.inputs import StudyInputs
from unseen.config.place import ABSENT, at
from unseen.experiments.catalogue import printed_key
from unseen.experiments.printed.model import Row
from unseen.report.comparison import compare_rows
from unseen.report.joint_intervals import joint_intervals
from unseen.report.recipes import text
from unseen.report.report_data import ReportData
from unseen.report.study_cells import Column, Gain, Line, Point, Rank, StudyTable
from unseen.report.study_costs import with_costs
from unseen.report.study_lines import (
    Numbers,
    columns_of,
    kind_of,
    own_columns,
    own_lines,
    printed_lines,
    printed_of,
)
from unseen.report.summary import summarize


def study_table(report_data: ReportData, dataset: str, study: StudyInputs) -> StudyTable:
    """The table of a study that the run covers."""
    methods = list(dict.fromkeys(row.method for row in study.rows))
    runs = [run for run in report_data.of(dataset) if run.method in methods]
    joint = {name: _intervals(report_data, dataset, name) for name in methods}
    summary = summarize([(run.method, run.metrics) for run in runs], methods, joint)
    printed = [row for row in printed_of(study) if row.dataset == dataset]
    table = Numbers(report_data, dataset, summary)
    if printed:
        columns = tuple(dict.fromkeys(column for row in printed for column in columns_of(row)))
        lines = printed_lines(table, study, printed, columns)
    else:
        columns = own_columns(table, study)
        lines = own_lines(table, study, columns)
    is_of_ensembles = all((dataset, row.method) in report_data.ensembles for row in study.rows)
    verdicts = {} if is_of_ensembles else compare_rows(report_data, dataset, summary, study, table.by_seed)
    columns_with_costs, lines_with_costs = with_costs(table, study, columns, lines)
    return StudyTable(
        study,
        dataset,
        columns=columns_with_costs,
        lines=lines_with_costs,
        ranks=rank_correlations(columns, lines, study.metric),
        points=points_of(table, study, printed, columns),
        is_printed=bool(printed),
        gains=gains_of(study, columns, lines),
        verdicts=verdicts,
        is_of_ensembles=is_of_ensembles,
    )


def _intervals(report_data: ReportData, dataset: str, method: str) -> dict[str, tuple[float, float]]:
    """Over classes, of the means over several seeds; those of one seed are in its metrics file."""
    runs = report_data.of(dataset, method)
    return joint_intervals(runs) if len(runs) > 1 else {}


def rank_correlations(columns: tuple[Column, ...], lines: Sequence[Line], metric: str) -> tuple[Rank, ...]:
    """The rank correlation of each printed column over the lines with both numbers; none below three."""
    ranks = []
    for place, column in enumerate(columns):
        ours_at = columns.index(Column(metric)) if column.printed_for else place
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


def gains_of(
    study: StudyInputs, columns: tuple[Column, ...], lines: Sequence[Line]
) -> dict[Column, tuple[Gain, ...]]:
    """The differences of the rows from their baselines, for each column with our numbers: in points, or
    relative for the columns of `study.metric`."""
    is_relative = study.gain == "percent"
    gains = {}
    for place, column in enumerate(columns):
        if column.printed_for or not study.baselines or (is_relative and column.metric != study.metric):
            continue
        cells = [(line.label, line.cells[place]) for line in lines]
        ours = {label: cell.ours.value for label, cell in cells if cell.ours}
        printed = {label: n.value for label, cell in cells if (n := cell.printed) is not None and n.reliable}
        gains[column] = tuple(
            Gain(
                row,
                baseline,
                _difference(ours, row, baseline, is_relative),
                _difference(printed, row, baseline, is_relative),
                "%" if is_relative else "",
            )
            for row, baseline in study.baselines.items()
        )
    return gains


def _difference(values: dict[str, float], row: str, baseline: str | None, is_relative: bool) -> float | None:
    """a - b, or 100 (a - b) / b; b is the highest other value without a baseline."""
    others = [value for label, value in values.items() if label != row]
    of_baseline = max(others, default=None) if baseline is None else values.get(baseline)
    if row not in values or of_baseline is None or (is_relative and not of_baseline):
        return None
    difference = values[row] - of_baseline
    return 100 * difference / of_baseline if is_relative else difference


def points_of(
    table: Numbers, study: StudyInputs, printed: Sequence[Row], columns: Sequence[Column]
) -> tuple[Point, ...]:
    """The points of the chart: the rows that have a number for every axis. The name of a series is what its
    labels have before the first comma, or else its method and the fields that vary."""
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
    kinds = [kind_of(row) for row in printed if study.metric in row.metrics]
    kinds += [column.kind for column in columns if column.metric == study.metric]
    points, heads = [], dict[str, set[str]]()
    for row in study.rows:
        recipe = table.recipe(row.method)
        place = [at(recipe, field) for field in study.axes]
        ours = table.of(row.method, Column(study.metric, (*kinds, "selected")[0])) or table.of(
            row.method, Column(study.metric)
        )
        if ours is None or not all(_is_number(value) for value in place):
            continue
        parts = [row.like] if several_methods else []
        parts += [
            _series_part(field, value) for field in varied if (value := at(recipe, field)) is not ABSENT
        ]
        series = ", ".join(parts) or row.like
        printed_value = numbers.get(row.printed) if row.printed is not None else None
        points.append(Point(series, tuple(map(float, place)), ours, printed_value))
        heads.setdefault(series, set()).add(row.label.split(", ")[0])
    names = {series: min(of_series) for series, of_series in heads.items() if len(of_series) == 1}
    if len(set(names.values())) < len(heads):  # the rows of a series have no name of their own
        return tuple(points)
    return tuple(replace(point, series=names[point.series]) for point in points)


def _series_part(field: str, value: Any) -> str:
    """`deit_small_patch16_224` for backbone.name, `dim 64` for dim."""
    return text(value) if field.endswith(".name") else f"{field.rpartition('.')[2]} {text(value)}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
