"""Tables of plain text: for the terminal, and as CSV."""

import csv
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Each row as a line: two spaces between columns, each column as wide as its widest cell but the last.
    right: the columns whose cells end at one place. Every row has the cells of the first one.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        texts = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(cells)
        )
        yield "  ".join(texts).rstrip()


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes rows, the names of the columns first, as CSV in UTF-8 with line feeds."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
