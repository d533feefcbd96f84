"""The table of a study over all data sets of the run: <directory>/<study>/table.csv, table.tex, table.md.

The columns are those of each data set in the printed order, the rows those of the paper. A cell has the
printed number, our mean, its deviation over seeds, its interval over classes, and the difference. Rows
`A over B` are differences, in points or in percent of B. The highest reliable printed number of a column and
our highest mean are bold, except in columns of numbers of order one, of which none is better. A study without
printed numbers has ours alone. The CSV also has the comparison of each row with the control of the study.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from unseen.experiments.printed.model import names as papers
from unseen.report.comparison import Pair
from unseen.report.report_data import ReportData
from unseen.report.study_cells import COSTS, IMAGENET, Cell, Column, Line, StudyTable, is_plain, outcome_of
from unseen.report.study_figures import grouped_bars
from unseen.report.study_files import write
from unseen.report.study_table import study_table
from unseen.report.svg import save
from unseen.report.words import name_of
from unseen.runtime.names import text_cell
from unseen.runtime.progress import track
from unseen.runtime.text import write_csv

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
} | {character: f"\\{character}" for character in "&%$#_{}"}
PARTS = ("printed", "printed deviation", "ours", "deviation", "low", "high", "difference")
FILES = ("table.csv", "table.tex", "table.md")
_OURS = "ours as the mean over seeds, its deviation, the interval over classes in brackets"
_CAPTION = f"Printed, and {_OURS}, and the difference from the printed number in parentheses."
_UNPRINTED = f"Nothing is printed: {_OURS}."
_NONE = Cell(None, None)


@dataclass(frozen=True)
class PlacedColumn:
    """A column of the document. `sides`: of "paper" and "ours", those that the table has. `cells` by row;
    `gains` of the printed numbers and of ours by `A over B`."""

    dataset: str
    column: Column
    sides: tuple[str, ...]
    cells: dict[str, Cell]
    gains: dict[str, tuple[str, str]]

    @property
    def title(self) -> str:
        return f"{self.dataset} {self.column.title}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of PARTS that the sides have."""
        is_own, is_printed = "ours" in self.sides, "paper" in self.sides
        return PARTS if is_own and is_printed else PARTS[:2] if is_printed else PARTS[2:-1]

    def texts_of_parts(self, row: str) -> dict[str, str]:
        """The text of each of PARTS; empty where there is none."""
        return dict(zip(PARTS, self._texts_of_parts(row), strict=True))

    def _texts_of_parts(self, row: str) -> list[str]:
        if row in self.gains:
            return [self.gains[row][0], "", self.gains[row][1], "", "", "", ""]
        cell = self.cells.get(row, _NONE)
        printed = [cell.printed.text, cell.printed.deviation or ""] if cell.printed else ["", ""]
        ours = cell.ours
        numbers = [ours.value, ours.deviation, ours.low, ours.high] if ours else [None] * 4
        digits = 4 if is_plain(self.column.metric) else 2
        return printed + ["" if n is None else f"{n:.{digits}f}" for n in (*numbers, cell.difference)]

    def texts(self, row: str, bold: Callable[[str], str], pm: str) -> list[str]:
        """A cell for each side: the printed number, ours."""
        cell = self.cells.get(row, _NONE)
        printed, spread, ours, deviation, low, high, difference = self._texts_of_parts(row)
        best_printed, best_ours = self._best()
        if cell.printed and cell.printed.reliable and cell.printed.value == best_printed:
            printed = bold(printed)
        if cell.ours and cell.ours.value == best_ours:
            ours = bold(ours)
        printed += f"{pm}{spread}" if spread else ""
        ours += f"{pm}{deviation}" if deviation else ""
        ours += f" [{low}, {high}]" if low else ""
        ours += f" ({'' if difference.startswith('-') else '+'}{difference})" if difference else ""
        cells = {"paper": printed, "ours": ours}
        return [cells[side] or "--" for side in self.sides]

    def _best(self) -> tuple[float | None, float | None]:
        """The highest printed number and our highest mean; None without one."""
        if is_plain(self.column.metric):
            return None, None
        numbers = [cell.printed for cell in self.cells.values() if cell.printed]
        printed = [number.value for number in numbers if number.reliable]
        ours = [cell.ours.value for cell in self.cells.values() if cell.ours]
        return max(printed, default=None), max(ours, default=None)


def write_studies(report_data: ReportData, directory: Path) -> None:
    """The files of every study: of each data set of the run, and of all together."""
    for study in track(report_data.studies, "report", "studies"):
        tables = [study_table(report_data, dataset, study) for dataset in report_data.datasets]
        folder = directory / study.name
        folder.mkdir(parents=True)
        for table in tables:
            write(table, report_data, folder)
        if len(tables) > 1 and "bars" in study.figures:
            save(grouped_bars(tables), folder / "bars")
        write_document(tables, folder)


def write_document(tables: Sequence[StudyTable], directory: Path) -> None:
    """The files of the tables of one study, one table per data set."""
    places = [place for table in tables for place in _places(table)]
    rows = list(dict.fromkeys(row for place in places for row in place.cells))
    rows += dict.fromkeys(row for place in places for row in place.gains)
    write_csv(directory / "table.csv", _cells(tables, places, rows))
    study = tables[0].study
    item = f"{papers()[study.paper]} {study.item}: " if study.paper else ""
    explained = _CAPTION if any("paper" in place.sides for place in places) else _UNPRINTED
    caption = f"{item}{' '.join(study.title.split())}. {explained}"
    (directory / "table.md").write_text(_markdown(caption, places, rows), encoding="utf-8")
    (directory / "table.tex").write_text(_latex(caption, study.name, places, rows), encoding="utf-8")


def _cells(
    tables: Sequence[StudyTable], places: Sequence[PlacedColumn], rows: Sequence[str]
) -> Iterator[Sequence[str]]:
    """The rows of the CSV."""
    conditions = {table.dataset: _lines(table) for table in tables if table.is_printed}
    heads = [f"{place.title} {part}" for place in places for part in place.parts]
    heads += [f"{dataset} differing conditions" for dataset in conditions]
    compared = [table for table in tables if table.verdicts]
    for table in compared:
        of_control = f"{table.dataset} {name_of(table.study.metric)} against {table.control}"
        heads += [f"{of_control} {part}" for part in ("difference", "low", "high", "p", "verdict")]
    methods = {label: line.method for table in tables for label, line in _lines(table).items()}
    yield ["row", "method", *map(text_cell, heads)]
    for row in rows:
        texts = [place.texts_of_parts(row)[part] for place in places for part in place.parts]
        for lines in conditions.values():
            texts.append(text_cell("; ".join(lines[row].differences)) if row in lines else "")
        for table in compared:
            texts += _verdict(table.verdicts.get(methods.get(row) or ""))
        yield [text_cell(row), methods.get(row) or "", *texts]


def _verdict(pair: Pair | None) -> list[str]:
    """Difference and interval, in points or of order one, adjusted p, and verdict; empty without a
    comparison."""
    if pair is None:
        return [""] * 5
    compared = pair.verdict.comparison
    ends = (compared.difference, compared.low, compared.high)
    scale, digits = (1, 4) if is_plain(pair.metric) else (100, 2)
    numbers = ["" if end is None else f"{scale * end:.{digits}f}" for end in ends]
    return [*numbers, f"{pair.verdict.adjusted:.2g}", outcome_of(pair)]


def _lines(table: StudyTable) -> dict[str, Line]:
    """The lines by their labels. Of lines with one label, all but the first have a number."""
    lines: dict[str, Line] = {}
    seen: Counter[str] = Counter()
    for line in table.lines:
        seen[line.label] += 1
        number = seen[line.label]
        lines[f"{line.label} ({number})" if number > 1 else line.label] = line
    return lines


def _sides(table: StudyTable, column: Column) -> tuple[str, ...]:
    if column.printed_for or column.metric == IMAGENET:
        return ("paper",)
    return ("paper", "ours") if table.is_printed or column.metric in COSTS else ("ours",)


def _places(table: StudyTable) -> list[PlacedColumn]:
    """The columns of a data set."""
    places = []
    for number, column in enumerate(table.columns):
        gains = {}
        for gain in table.gains.get(column, ()):
            gains[gain.title] = (gain.text(gain.printed), gain.text(gain.ours))
        cells = {label: line.cells[number] for label, line in _lines(table).items()}
        places.append(PlacedColumn(table.dataset, column, _sides(table, column), cells, gains))
    return places


def _markdown(caption: str, places: Sequence[PlacedColumn], rows: Sequence[str]) -> str:
    heads = [f"{place.title} {side}" for place in places for side in place.sides]
    lines = [["row", *heads], ["---", *["---:"] * len(heads)]]
    for row in rows:
        texts = [place.texts(row, lambda text: f"**{text}**", " ± ") for place in places]
        lines.append([row.replace("|", "\\|"), *(text for pair in texts for text in pair)])
    return "\n".join([caption, "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _latex(caption: str, name: str, places: Sequence[PlacedColumn], rows: Sequence[str]) -> str:
    """A table of package booktabs."""
    heads = [rf"\multicolumn{{{len(place.sides)}}}{{c}}{{{_escaped(place.title)}}}" for place in places]
    sides = [side for place in places for side in place.sides]
    body = []
    for row in rows:
        texts = [place.texts(row, lambda text: rf"\textbf{{{text}}}", r" $\pm$ ") for place in places]
        cells = [text.replace("%", r"\%") for pair in texts for text in pair]
        # in braces: `[` and `*` after the end of a line are its arguments
        body.append(f"{{{_escaped(row)}}} & {' & '.join(cells)} \\\\")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(caption)}}}",
        rf"\label{{tab:{name}}}",
        rf"\begin{{tabular}}{{l{'r' * len(sides)}}}",
        r"\toprule",
        f" & {' & '.join(heads)} \\\\",
        f" & {' & '.join(sides)} \\\\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def _escaped(text: str) -> str:
    """Text for LaTeX."""
    return re.sub(r"[\\^~&%$#_{}]", lambda match: _SPECIAL[match[0]], text)
