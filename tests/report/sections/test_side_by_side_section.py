"""One query under two methods: the largest differences in both directions, with the matches of each."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tests.report.page_reader import Element
from unseen.report.dataset import DataSet
from unseen.report.sections.side_by_side import QUERIES, choose


def test_the_queries_with_the_largest_differences_are_shown(page: Element, project: Path) -> None:
    section = page.first("details", **{"class": "side-by-side"})
    ranked = {}
    neighbours = {}
    for method in ("good", "fair"):
        folder = project / f"evaluation/birds/{method}/0"
        table = pq.read_table(folder / "queries.parquet").to_pandas().set_index("row_id")
        ranked[method] = table["ap_at_r"]
        nearest = pq.read_table(folder / "neighbours.parquet").to_pandas().set_index("row_id")
        neighbours[method] = nearest["neighbours"]
    gain = ranked["good"] - ranked["fair"]
    positions = [int(query["data-row"]) for query in section.all("div", **{"class": "query"})]
    assert positions[::2] == positions[1::2], "the same query under both methods"
    worse = int((gain < 0).sum())
    assert gain[positions[: 2 * QUERIES : 2]].tolist() == sorted(gain, reverse=True)[:QUERIES]
    assert gain[positions[2 * QUERIES :: 2]].tolist() == sorted(gain)[: min(worse, QUERIES)]
    for position, query in enumerate(section.all("div", **{"class": "query"})):
        method = ("good", "fair")[position % 2]
        rows = [int(match["data-row"]) for match in query.all("li") if match["class"] != "missing"]
        assert rows == list(neighbours[method][positions[position]][: len(rows)])
        assert method in query.first("figcaption").text()
    assert section.first("h4").text() == "Queries that good ranks better"


def test_queries_are_matched_by_id(birds: DataSet) -> None:
    (first,), (second,) = birds.runs("good"), birds.runs("poor")
    permuted = second.queries.take(np.random.default_rng(0).permutation(len(second.queries)))
    assert choose(first.queries, permuted) == choose(first.queries, second.queries)
    assert choose(first.queries, first.queries) == ([], [])
