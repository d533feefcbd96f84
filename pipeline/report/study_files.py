"""The table of a study as CSV and LaTeX, and its charts as SVG and PDF, as <directory>/<study>/
<data set>.csv and so on."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.report.figures import study as figures
from pipeline.report.figures.svg import PRINT, save
from pipeline.report.report_data import ReportData
from pipeline.report.study_table import Column, Ours, StudyTable, is_plain, study_table
from pipeline.runtime.progress import track

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
    charts = series if len(table.study.axes) == 2 else min(series, 1)
    places = [_place(number) for number in range(charts)]
    return [
        f"{table.dataset}{end}"
        for end in (".csv", ".tex", *(f"{p}.{k}" for p in places for k in ("svg", "pdf")))
    ]


def csv_rows(table: StudyTable) -> Iterator[list[str]]:
    """A header, and a row per line: printed number and deviation, our mean and deviation, difference."""
    parts = ("printed", "printed deviation", "ours", "deviation", "difference")
    heads = [f"{column.title} {part}" for column in table.columns for part in parts]
    yield ["row", "method", *heads, "differing conditions"]
    for line in table.lines:
        cells: list[str] = []
        for cell, column in zip(line.cells, table.columns, strict=True):
            printed = cell.printed
            cells += [
                printed.text if printed else "",
                (printed.deviation or "") if printed else "",
                *_numbers(cell.ours, column),
                _rounded(cell.difference, column),
            ]
        yield [line.label, line.method or "", *cells, "; ".join(line.differences)]


def latex(table: StudyTable) -> str:
    """A tabular of package booktabs: the printed number and ours, for each column."""
    columns = "l" + "r" * sum(map(_width, table.columns))
    heads = [
        rf"\multicolumn{{{_width(column)}}}{{c}}{{{_escaped(column.title)}}}" for column in table.columns
    ]
    parts = [
        part for column in table.columns for part in (["paper"] if column.printed_for else ["paper", "ours"])
    ]
    lines = [
        f"% {table.study.name} on {table.dataset}: {table.study.title}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        f" & {' & '.join(heads)} \\\\",
        f" & {' & '.join(parts)} \\\\",
        r"\midrule",
    ]
    for line in table.lines:
        cells = []
        for cell, column in zip(line.cells, table.columns, strict=True):
            printed = "--" if cell.printed is None else cell.printed.text
            if cell.printed is not None and cell.printed.deviation:
                printed += rf" $\pm$ {cell.printed.deviation}"
            cells.append(printed)
            if not column.printed_for:
                value, deviation = _numbers(cell.ours, column)
                cells.append(rf"{value} $\pm$ {deviation}" if deviation else value or "--")
        lines.append(f"{_escaped(line.label)} & {' & '.join(cells)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _width(column: Column) -> int:
    return 1 if column.printed_for else 2


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
