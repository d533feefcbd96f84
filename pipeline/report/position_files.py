"""The heat maps of a method as one SVG, and their weights as CSV: <directory>/<data set>/<method>.svg and
.csv.

A row of the picture is a query: the image, then the maps of the section of the report
(pipeline/report/sections/positions.py) in their order.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from markupsafe import escape

from unseen.data.positions import Positions
from unseen.data.shards import Shards
from unseen.report import pictures
from unseen.report.heat_maps import data_uri
from unseen.report.report_data import ReportData
from unseen.report.sections.positions import chosen
from unseen.runtime.names import text_cell
from unseen.runtime.text import write_csv

SIZE, GAP, TEXT = 224, 12, 34  # pixels: longer side of a picture, between pictures, height of a caption
HEADER = ("row_id", "source", "map", "reference", "row", "column", "weight", "prototype")


def write_positions(report_data: ReportData, directory: Path) -> None:
    """The files of all methods of all data sets."""
    for (dataset, method), positions in report_data.positions.items():
        folder = directory / dataset
        folder.mkdir(parents=True, exist_ok=True)
        picture = svg(report_data.shards[dataset], positions, f"{method} on {dataset}")
        (folder / f"{method}.svg").write_text(picture, encoding="utf-8")
        write_csv(folder / f"{method}.csv", [HEADER, *csv_rows(positions)])


def svg(shards: Shards, positions: Positions, title: str) -> str:
    """The picture of all queries. Equal maps give equal bytes."""
    lines: list[list[tuple[str, str]]] = []
    for query in positions.queries:
        tiles = [(pictures.data_uri(shards.image(query.row_id), SIZE), "query")]
        for each, caption, right in chosen(positions, query):
            match = {None: "", True: "right match, ", False: "wrong match, "}[right]
            tiles.append((data_uri(shards.image(each.row_id), each, SIZE), match + caption))
        lines.append(tiles)
    step_x, step_y = SIZE + GAP, SIZE + TEXT + GAP
    width, height = GAP + step_x * max(map(len, lines), default=1), GAP + TEXT + step_y * len(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{GAP}" y="{GAP + 16}" font-size="16">{escape(title)}</text>',
    ]
    for line, tiles in enumerate(lines):
        y = GAP + TEXT + line * step_y
        for column, (uri, caption) in enumerate(tiles):
            x = GAP + column * step_x
            parts.append(f'<image x="{x}" y="{y}" width="{SIZE}" height="{SIZE}" href="{uri}"/>')
            parts.append(f'<text x="{x}" y="{y + SIZE + 18}">{escape(caption)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def csv_rows(positions: Positions) -> Iterator[list[str]]:
    """One row per position of each map of the picture."""
    for query in positions.queries:
        for each, _, _ in chosen(positions, query):
            for (row, column), weight in np.ndenumerate(each.weights):
                prototype = "" if each.prototype is None else str(int(each.prototype[row, column]) + 1)
                yield [
                    str(each.row_id),
                    text_cell(each.source),
                    each.name,
                    "" if each.reference is None else str(each.reference),
                    str(row),
                    str(column),
                    f"{float(weight):.6g}",
                    prototype,
                ]
