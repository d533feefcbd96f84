"""The table of a study as CSV and LaTeX, and its charts as SVG and PDF, as <directory>/<study>/
<data set>.csv and so on."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from unseen.report import study_figures as figures
from unseen.report.report_data import ReportData
from unseen.report.study_cells import Column, Ours, StudyTable, is_plain
from unseen.report.study_table import study_table
from unseen.report.svg import PRINT, save
from unseen.runtime.progress import track

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def write_studies(report_data: ReportData, directory: Path) -> None:
    """The files of every study on every data set of the run."""
    for study in track(report_data.studies, "report", "studies"):
        for dataset in report_data.datasets:
            write(study_table(report_data, dataset, study), directory / study.name)


def write(table: StudyTable, directory: Path) -> None:
    """The files of a study on a data set."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / table.dataset
    with path.with_name(f"{path.name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(csv_rows(table))
    path.with_name(f"{path.name}.tex").write_text(latex(table), encoding="utf-8")
    for number, figure in enumerate(figures.figures(table, PRINT)):
        for kind in ("svg", "pdf"):
            save(figure, path.with_name(f"{path.name}{_place(number)}.{kind}"))


def names(table: StudyTable) -> list[str]:
    """The names of these files."""
    series = len({point.series for point in table.points})
    charts = (series if len(table.study.axes) == 2 else min(series, 1)) + len(table.gains)
    places = [_place(number) for number in range(charts)]
    return [
        f"{table.dataset}{end}"
        for end in (".csv", ".tex", *(f"{p}.{k}" for p in places for k in ("svg", "pdf")))
    ]


def csv_rows(table: StudyTable) -> Iterator[list[str]]:
    """A header, and a row per line. A column has the printed number and its deviation, our mean and its
    deviation, and their difference, as far as the table has them."""
    heads = [f"{column.title} {part}" for column in table.columns for part in _parts(table, column)]
    yield ["row", "method", *heads, *(["differing conditions"] if table.is_printed else [])]
    for line in table.lines:
        cells: list[str] = []
        for cell, column in zip(line.cells, table.columns, strict=True):
            printed = cell.printed
            ours, deviation = _numbers(cell.ours, column)
            values = {
                "printed": printed.text if printed else "",
                "printed deviation": (printed.deviation or "") if printed else "",
                "ours": ours,
                "deviation": deviation,
                "difference": _rounded(cell.difference, column),
            }
            cells += [values[part] for part in _parts(table, column)]
        conditions = ["; ".join(line.differences)] if table.is_printed else []
        yield [line.label, line.method or "", *cells, *conditions]


def latex(table: StudyTable) -> str:
    """A tabular of package booktabs: the printed number, ours, or both, for each column."""
    widths = [len(_sides(table, column)) for column in table.columns]
    heads = [
        rf"\multicolumn{{{width}}}{{c}}{{{_escaped(column.title)}}}"
        for width, column in zip(widths, table.columns, strict=True)
    ]
    lines = [
        f"% {table.study.name} on {table.dataset}: {table.study.title}",
        rf"\begin{{tabular}}{{l{'r' * sum(widths)}}}",
        r"\toprule",
        f" & {' & '.join(heads)} \\\\",
        f" & {' & '.join(side for column in table.columns for side in _sides(table, column))} \\\\",
        r"\midrule",
    ]
    for line in table.lines:
        cells: list[str] = []
        for cell, column in zip(line.cells, table.columns, strict=True):
            printed = (cell.printed.text, cell.printed.deviation) if cell.printed else ("", None)
            values = {"paper": printed, "ours": _numbers(cell.ours, column)}
            cells += [_with_deviation(*values[side]) for side in _sides(table, column)]
        lines.append(f"{_escaped(line.label)} & {' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _parts(table: StudyTable, column: Column) -> tuple[str, ...]:
    """The columns of a column in the CSV file."""
    if column.printed_for:
        return ("printed", "printed deviation")
    printed = ("printed", "printed deviation", "ours", "deviation", "difference")
    return printed if table.is_printed else ("ours", "deviation")


def _sides(table: StudyTable, column: Column) -> tuple[str, ...]:
    """The columns of a column in the LaTeX table."""
    if column.printed_for:
        return ("paper",)
    return ("paper", "ours") if table.is_printed else ("ours",)


def _with_deviation(value: str, deviation: str | None) -> str:
    return rf"{value} $\pm$ {deviation}" if deviation else value or "--"


def _numbers(ours: Ours | None, column: Column) -> tuple[str, str]:
    if ours is None:
        return "", ""
    return _rounded(ours.value, column), _rounded(ours.deviation, column)


def _rounded(value: float | None, column: Column) -> str:
    """Two digits of percent; four of a number of order one."""
    return "" if value is None else f"{value:.{4 if is_plain(column.metric) else 2}f}"


def _escaped(text: str) -> str:
    return re.sub(r"[\\^~&%$#_{}]", lambda match: _SPECIAL[match[0]], text)


def _place(number: int) -> str:
    return f"-{number + 1}" if number else ""
