"""Galleries: test images with their nearest test images, the worst queries first, right and wrong matches
marked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from unseen.data.judge import judge_of
from unseen.report.dataset import DataSet, Picture
from unseen.report.overlays import Overlays
from unseen.report.report_data import RunResults
from unseen.report.words import name_of, percent

FIRST_QUERIES = 3  # of a group of a gallery; the others are collapsed
# columns of the per-query files; the first that exists is used
MEASURES = {"ap_at_r": "AP@R", "medium_ap": "AP"}


@dataclass(frozen=True)
class Query:
    picture: Picture
    matches: tuple[Picture, ...]
    score: float
    measure: str  # the name of `score`
    relevant: int
    first_positive: int | None  # rank of the first right match; None: beyond the ranks that were computed
    # The nearest image that is right, if no match is; without a similarity where none of the computed
    # neighbours is right.
    missing: Picture | None


@dataclass(frozen=True)
class Group:
    title: str
    queries: tuple[Query, ...]


def content(dataset: DataSet) -> dict[str, Any]:
    """One gallery per method, of its first seed; the gallery of the best method is open."""
    headline = dataset.summary.headline
    galleries = []
    for method in dataset.methods:
        run = dataset.runs(method.name)[0]
        overlays, query = viewer(dataset, run)
        value = dataset.summary.of(method.name, headline)
        note = f"{name_of(headline)} {percent(value.value)}" if value else ""
        galleries.append(
            {
                "method": method,
                "open": dataset.best is not None and dataset.best.method == method.name,
                "note": f"{note}, seed {run.seed}" if dataset.seeds > 1 else note,
                "groups": [
                    Group(title, tuple(map(query, positions.tolist())))
                    for title, positions in choose(run.queries, dataset.gallery.queries, overlays.queries)
                ],
            }
        )
    return {
        "galleries": galleries,
        "first_queries": FIRST_QUERIES,
        "heat_maps": bool(dataset.report_data.positions),
    }


def choose(
    table: pa.Table, count: int, mapped: Sequence[int] = (), seed: int = 0
) -> list[tuple[str, Int[np.ndarray, " q"]]]:
    """(title, positions in `table`) of `count` queries: half the worst, a quarter median ones, a quarter
    random ones. Rows of `mapped`, which are random queries too, are the first of these.

    Worst first: ascending average precision, then the later first right match, then the row id. The random
    ones depend on the row ids only, so all methods of a data set show the same. Lone queries are excluded.
    """
    scored = np.flatnonzero(table["relevant"].to_numpy() > 0)
    ap = table[measure_of(table)].to_numpy(zero_copy_only=False)[scored]
    first = np.zeros(len(scored))
    if "first_positive" in table.column_names:
        column = table["first_positive"].to_numpy(zero_copy_only=False)
        first = np.nan_to_num(column.astype(float)[scored], nan=np.inf)
    rows = table["row_id"].to_numpy()[scored]
    order = scored[np.lexsort((rows, -first, ap))]
    quarter = count // 4
    worst = order[: count - 2 * quarter]
    middle = max(len(worst), (len(order) - quarter) // 2)
    median = order[middle : middle + quarter]
    chosen = {*worst.tolist(), *median.tolist()}
    by_row = scored[np.argsort(rows)]
    permuted = np.random.default_rng(seed).permutation(by_row).tolist()
    place = {int(row): position for position, row in zip(scored.tolist(), rows, strict=True)}
    with_maps = [place[row] for row in mapped if row in place]
    random = [position for position in dict.fromkeys((*with_maps, *permuted)) if position not in chosen]
    random = random[:quarter]
    groups = [
        ("Worst queries", worst),
        ("Median queries", median),
        ("Random queries", np.array(random, dtype=np.int64)),
    ]
    return [(title, positions) for title, positions in groups if len(positions)]


def viewer(dataset: DataSet, run: RunResults) -> tuple[Overlays, Callable[[int], Query]]:
    """The heat maps of a run, and a function from the position of a query in its table to the query with its
    nearest test images that are right or wrong, and an image that should be among them if none is right."""
    shards, queries, neighbours = dataset.shards, run.queries, run.neighbours
    overlays = Overlays(dataset.report_data.positions.get((dataset.name, run.method)))
    row_ids, measure = queries["row_id"].to_numpy(), measure_of(queries)
    judge, gallery = judge_of(shards), shards.rows("test")
    gallery = gallery[shards.is_gallery[gallery]]
    position_of = {int(row): position for position, row in enumerate(neighbours["row_id"].to_numpy())}

    def shown(row: int, compared: int | None, **of_match: Any) -> Picture:
        overlay = overlays.overlay(row, int(shards.sizes[row, 0]), int(shards.sizes[row, 1]), compared)
        return dataset.picture(row, overlay=overlay, **of_match)

    def relevant(row: int) -> list[int]:
        return [int(match) for match in gallery if match != row and judge(row, int(match))]

    def query(position: int) -> Query:
        row = int(row_ids[position])
        nearest, similarities = (
            neighbours[name][position_of[row]].as_py() for name in ("neighbours", "similarities")
        )
        judged = [
            shown(match, row, right=right, similarity=similarity)
            for match, similarity in zip(nearest, similarities, strict=True)
            if (right := judge(row, match)) is not None
        ]
        nearest_matches = tuple(judged[: dataset.gallery.neighbours])
        missing = None
        if not any(match.right for match in nearest_matches):
            missing = next((match for match in judged if match.right), None)
            if missing is None and (others := relevant(row)):
                missing = shown(others[0], row, right=True)
        has_first = "first_positive" in queries.column_names
        return Query(
            picture=shown(row, next((match.row for match in judged if match.right), None)),
            matches=nearest_matches,
            score=queries[measure][position].as_py(),
            measure=MEASURES[measure],
            relevant=queries["relevant"][position].as_py(),
            first_positive=queries["first_positive"][position].as_py() if has_first else None,
            missing=missing,
        )

    return overlays, query


def measure_of(queries: pa.Table) -> str:
    """The column by which queries are sorted."""
    return next(name for name in MEASURES if name in queries.column_names)
