"""The table of a study as CSV and LaTeX, and its charts as SVG and PDF, as <directory>/<study>/
<data set>.csv and so on."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

from unseen.report import study_figures as figures
from unseen.report.study_cells import Column, Line, StudyTable, is_plain
from unseen.report.svg import PRINT, save
from unseen.runtime.names import text_cell

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}
_PARTS = {"printed": ("printed", "printed deviation"), "ours": ("ours", "deviation")}


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
    parts = [
        (place, part)
        for place, column in enumerate(table.columns)
        for sides in [_sides(table, column)]
        for part in (*(part for side in sides for part in _PARTS[side]), *["difference"] * (len(sides) - 1))
    ]
    conditions = ["differing conditions"] if table.is_printed else []
    heads = [text_cell(f"{table.columns[place].title} {part}") for place, part in parts]
    yield ["row", "method", *heads, *conditions]
    for line in table.lines:
        values = _values(table, line)
        conditions = [text_cell("; ".join(line.differences))] if table.is_printed else []
        cells = [values[place][part] for place, part in parts]
        yield [text_cell(line.label), line.method or "", *cells, *conditions]


def latex(table: StudyTable) -> str:
    """A tabular of package booktabs: the printed number, ours, or both, for each column."""
    sides = [(place, side) for place, column in enumerate(table.columns) for side in _sides(table, column)]
    heads = [
        rf"\multicolumn{{{len(_sides(table, column))}}}{{c}}{{{escaped(column.title)}}}"
        for column in table.columns
    ]
    names = [{"printed": "paper", "ours": "ours"}[side] for _, side in sides]
    lines = [
        f"% {table.study.name} on {table.dataset}: {' '.join(table.study.title.split())}",  # ends at a line
        rf"\begin{{tabular}}{{l{'r' * len(sides)}}}",
        r"\toprule",
        f" & {' & '.join(heads)} \\\\",
        f" & {' & '.join(names)} \\\\",
        r"\midrule",
    ]
    for line in table.lines:
        values = _values(table, line)
        cells = [[values[place][part] for part in _PARTS[side]] for place, side in sides]
        texts = [rf"{value} $\pm$ {spread}" if spread else value or "--" for value, spread in cells]
        lines.append(f"{escaped(line.label)} & {' & '.join(texts)} \\\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _sides(table: StudyTable, column: Column) -> tuple[str, ...]:
    """The sides of a column that the table has, keys of _PARTS."""
    if column.printed_for:
        return ("printed",)
    return ("printed", "ours") if table.is_printed else ("ours",)


def _values(table: StudyTable, line: Line) -> list[dict[str, str]]:
    """The numbers of each column as text: two digits of percent, four of a number of order one."""
    values = []
    for cell, column in zip(line.cells, table.columns, strict=True):
        numbers = {
            "ours": cell.ours and cell.ours.value,
            "deviation": cell.ours and cell.ours.deviation,
            "difference": cell.difference,
        }
        digits = 4 if is_plain(column.metric) else 2
        values.append(
            {name: "" if value is None else f"{value:.{digits}f}" for name, value in numbers.items()}
            | {
                "printed": cell.printed.text if cell.printed else "",
                "printed deviation": (cell.printed.deviation or "") if cell.printed else "",
            }
        )
    return values


def escaped(text: str) -> str:
    """Text for LaTeX."""
    return re.sub(r"[\\^~&%$#_{}]", lambda match: _SPECIAL[match[0]], text)


def _place(number: int) -> str:
    return f"-{number + 1}" if number else ""
