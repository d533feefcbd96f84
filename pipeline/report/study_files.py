"""The charts of a study as SVG and PDF: <directory>/<study>/<data set>.svg and so on."""

from pathlib import Path

from unseen.report import study_figures as figures
from unseen.report.study_cells import StudyTable
from unseen.report.svg import PRINT, save


def write(table: StudyTable, directory: Path) -> None:
    """The charts of a study on a data set."""
    for number, figure in enumerate(figures.figures(table, PRINT)):
        for kind in ("svg", "pdf"):
            save(figure, directory / f"{table.dataset}{_place(number)}.{kind}")


def names(table: StudyTable) -> list[str]:
    """The names of these files."""
    series = len({point.series for point in table.points})
    charts = (series if len(table.study.axes) == 2 else min(series, 1)) + len(table.charted_gains)
    return [f"{table.dataset}{_place(number)}.{kind}" for number in range(charts) for kind in ("svg", "pdf")]


def _place(number: int) -> str:
    return f"-{number + 1}" if number else ""
