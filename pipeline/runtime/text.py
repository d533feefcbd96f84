"""Tables of plain text, for the terminal."""

from collections.abc import Collection, Iterator, Sequence


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
