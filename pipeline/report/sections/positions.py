"""Weights of image positions: the weights of the positions of queries and their matches as heat maps, and the
share of weight on the object for data sets with known object positions.
"""

import statistics
from dataclasses import replace
from typing import Any

from unseen.data.positions import PositionMap, Positions, QueryMatches
from unseen.evaluation.analysis.object_shares import CONFIDENCE
from unseen.report.dataset import DataSet
from unseen.report.heat_maps import data_uri
from unseen.report.words import percent, span

CONTRIBUTION = "contribution"  # the map of every method (pipeline/methods/explain/contribution.py)
DETAILS = 4  # maps of single prototypes and points on the page; the files have all


def content(dataset: DataSet) -> dict[str, Any] | None:
    """None without positions files: a report of results of an earlier version."""
    positions = {
        method: dataset.report_data.positions[dataset.name, method.name]
        for method in dataset.methods
        if (dataset.name, method.name) in dataset.report_data.positions
    }
    if not positions:
        return None
    first = next(iter(positions.values()))
    queries = [
        {
            "picture": dataset.picture(query.row_id),
            "looks": [
                {"method": method, "maps": _maps(dataset, of_method, query.row_id)}
                for method, of_method in positions.items()
            ],
        }
        for query in first.queries
    ]
    shares = _shares(dataset)
    areas = [row["area"] for row in dataset.report_data.object_shares_of(dataset.name)]
    return {
        "queries": queries,
        "shares": shares,
        "area": percent(statistics.fmean(areas) if areas else None),
        "confidence": f"{CONFIDENCE:.0%}",
        "folder": f"positions/{dataset.name}",
    }


def _maps(dataset: DataSet, positions: Positions, row: int) -> list[dict[str, Any]]:
    """The maps of a method for a query: of its comparison with the matches, and of the query alone."""
    query = next(query for query in positions.queries if query.row_id == row)
    maps = []
    for each, caption, right in chosen(positions, query, DETAILS):
        image = data_uri(dataset.shards.image(each.row_id), each, dataset.gallery.thumbnail)
        maps.append({"picture": dataset.picture(each.row_id, image, right=right), "caption": caption})
    return maps


def chosen(
    positions: Positions, query: QueryMatches, details: int | None = None
) -> list[tuple[PositionMap, str, bool | None]]:
    """The maps of a query and its matches, with their captions and whether their image is a right match: the
    query compared with its right match, both matches compared with the query, and the maps of the query that
    belong to its method.

    details: the number of maps of single prototypes and points; None: all.
    """
    of_row: dict[int, list[PositionMap]] = {}
    for each in positions.maps:
        of_row.setdefault(each.row_id, []).append(each)
    pairs: list[tuple[int, int, str, bool | None]] = []
    if query.right is not None:
        pairs.append((query.row_id, query.right.row_id, "query", None))
    for match, right in ((query.right, True), (query.wrong, False)):
        if match is not None:
            pairs.append((match.row_id, query.row_id, f"{match.similarity:.2f}", right))
    result: list[tuple[PositionMap, str, bool | None]] = []
    for row, reference, caption, is_right in pairs:
        compared = [each for each in of_row.get(row, []) if each.reference == reference]
        if compared:
            name = f"{compared[0].name}, {caption}" if is_right is None else caption
            result.append((compared[0], name, is_right))
    compared_names = {each.name for each, _, _ in result}
    own = [each for each in of_row[query.row_id] if each.reference is None]
    single = [each for each in own if each.detail][:details]
    for each in [each for each in own if not each.detail] + single:
        if each.name not in compared_names:
            result.append((replace(each, prototype=None), each.name, None))
            if each.prototype is not None:
                result.append((each, "dominant prototypes", None))
    return result


def _shares(dataset: DataSet) -> list[dict[str, Any]]:
    """The shares of each method: of its contributions, and of each kind of its own weights, by name."""
    rows = dataset.report_data.object_shares_of(dataset.name)
    result = []
    for method in dataset.methods:
        of_map: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["method"] == method.name:
                of_map.setdefault(row["map"], []).append(row)
        shares = {name: _share(of_seeds) for name, of_seeds in of_map.items()}
        if shares:
            contribution = shares.pop(CONTRIBUTION, "–")
            result.append({"method": method, "contribution": contribution, "own": shares})
    return result


def _share(rows: list[dict[str, Any]]) -> str:
    """The mean over seeds in percent, with the interval of a single seed."""
    text, first = percent(statistics.fmean(row["share"] for row in rows)), rows[0]
    has_interval = len(rows) == 1 and first["low"] is not None
    return f"{text} ({span(first['low'], first['high'])})" if has_interval else text
