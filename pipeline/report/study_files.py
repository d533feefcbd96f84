"""The figures of a study as SVG and PDF: its charts as <directory>/<data set>.svg and so on, and the figures
of its rows in the forms of the paper (`figures` of the study) as <data set>-<form>.svg and so on.

The latter have the rows of the study alone, with the names that the paper gives them.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from unseen.config.inputs import Form
from unseen.data.decode import decode
from unseen.data.positions import Positions
from unseen.report.dataset import DataSet, GallerySize
from unseen.report.heat_maps import heat_map
from unseen.report.report_data import ReportData
from unseen.report.sections import attributes, embedding_map, similarity, spectrum, training
from unseen.report.sections.gallery import choose, viewer
from unseen.report.sections.positions import chosen
from unseen.report.study_cells import StudyTable
from unseen.report.study_figures import charts
from unseen.report.svg import Tile, picture_grid, save, with_legend

_GALLERY = GallerySize(queries=8, neighbours=4, thumbnail=224)


def write(table: StudyTable, report_data: ReportData, directory: Path) -> None:
    """The figures of a study on a data set."""
    _save((chart.figure for chart in charts(table, "file")), directory, table.dataset)
    rows = DataSet(report_data.under_labels(table.study), table.dataset, "file", _GALLERY)
    for form in table.study.figures:
        _save(_figures(form, rows), directory, f"{table.dataset}-{form}")


def _save(figures: Iterable[Figure], directory: Path, name: str) -> None:
    for number, figure in enumerate(figures):
        save(figure, directory / f"{name}{f'-{number + 1}' if number else ''}")


def _figures(form: Form, rows: DataSet) -> Iterator[Figure]:
    """The figures of the rows in a form; bars are a chart."""
    curves = rows.analysis.first_curves
    if form == "epochs":
        for metric in ("test_recall_at_1", "recall_at_1"):
            known = {
                m: h for m, h in rows.histories.items() if any(metric in row for run in h for row in run)
            }
            if known:
                epoch = training.steps_of_epoch(rows)
                chart = training.validation(known, rows.positions, metric, "file", epoch)
                yield with_legend(chart.figure)
    elif form == "histograms":
        yield from (with_legend(chart.figure) for chart in similarity.content(rows)["figures"])
    elif form == "energy" and curves:
        yield with_legend(spectrum.energy(rows.analysis.curves, rows.positions, "file").figure)
    elif form == "hulls":
        for method, curve in curves.items():
            if curve.get("map"):
                yield embedding_map.figure(method, curve["map"], rows.labels, "file").figure
    elif form == "attributes":
        charts_of_rows = (attributes.content(rows) or {"figures": ()})["figures"]
        yield from (with_legend(chart.figure) for chart in charts_of_rows)
    elif form == "positions":
        for (dataset, method), positions in rows.report_data.positions.items():
            if dataset == rows.name:
                yield picture_grid(method, list(_maps(rows, positions)))
    elif form == "gallery":
        for method in rows.report_data.methods:
            yield picture_grid(method, list(_retrieved(rows, method)))


def _maps(rows: DataSet, positions: Positions) -> Iterator[Sequence[Tile]]:
    """A line per query: the image, and its maps."""
    for query in positions.queries:
        maps = chosen(positions, query)
        image = decode(rows.shards.image(query.row_id))
        tiles = [Tile(image, "query")]
        for each, caption, right in maps:
            of_map = decode(rows.shards.image(each.row_id))
            tiles.append(Tile(heat_map(of_map, each, _GALLERY.thumbnail), caption, right))
        yield tiles


def _retrieved(rows: DataSet, method: str) -> Iterator[Sequence[Tile]]:
    """A line per query: the image, and its nearest test images."""
    run = rows.runs(method)[0]
    overlays, query = viewer(rows, run)
    for _, places in choose(run.queries, _GALLERY.queries, overlays.queries):
        for shown in map(query, places.tolist()):
            yield [
                Tile(decode(rows.shards.image(shown.picture.row)), "query"),
                *(
                    Tile(decode(rows.shards.image(match.row)), f"{match.similarity:.2f}", match.right)
                    for match in shown.matches
                ),
            ]
