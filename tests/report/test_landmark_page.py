"""Landmark benchmarks: metrics, intervals and galleries follow their own ground truth."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.report.page_reader import read_page
from unseen.data.embeddings import read
from unseen.evaluation.evaluate import Sides
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.metrics import Rows
from unseen.evaluation.tables import write_table
from unseen.report.page import build
from unseen.report.report_data import read_report_data
from unseen.runtime.files import write_json
from unseen.runtime.sealed import write_digests


@pytest.fixture
def landmarks(make_project: Callable[..., Path]) -> Path:
    """The synthetic run as two landmark benchmarks: three queries each, with junk among their nearest
    images."""
    root = make_project(noise={"good": 0.4, "poor": 1.2})
    truth = {"benchmark": [], "query": [], "easy": [], "hard": [], "junk": []}
    for benchmark, first in (("oxford", 30), ("paris", 45)):
        for query in range(first, first + 15, 5):
            positives = list(range(query + 1, query + 5))
            for name, value in zip(
                truth, (benchmark, query, positives[:1], positives[1:3], positives[3:]), strict=True
            ):
                truth[name].append(value)
    table = pa.table(truth)
    pq.write_table(table, root / "shards/birds/ground_truth.parquet")
    for method in ("good", "poor"):
        sides = {}
        for file in ("test", "test-last", "test-untrained"):
            rows = read(root / f"embeddings/birds/{method}/0/{file}.arrow")
            is_used = rows.row_id < 60
            label = np.where(rows.row_id < 45, 0, 1)
            query = is_used & np.isin(rows.row_id, truth["query"])
            sides[file] = Sides(
                *(
                    Rows(rows.row_id[side], label[side], rows.embedding[side])
                    for side in (query, is_used & ~query)
                )
            )
        protocol = LandmarkProtocol("test", 0.95, 0)
        judged = evaluate_landmarks(
            sides["test"], {"last": sides["test-last"], "untrained": sides["test-untrained"]}, table, protocol
        )
        write_json(root / f"evaluation/birds/{method}/0/metrics.json", judged.metrics)
        write_table(root / f"evaluation/birds/{method}/0/queries.parquet", judged.queries)
        write_table(root / f"evaluation/birds/{method}/0/neighbours.parquet", judged.neighbours)
        write_json(root / f"evaluation/birds/{method}/0/protocol.json", protocol.declaration())
        write_digests(root / f"evaluation/birds/{method}/0")
    return root


@pytest.mark.slow
def test_landmark_benchmarks_use_their_own_ground_truth(landmarks: Path) -> None:
    inputs = read_report_data(landmarks, ("birds",), ("good", "poor"), (0,))
    page = read_page(build(inputs, "A report", queries=8, neighbours=5, thumbnail=24).html)
    metrics = json.loads((landmarks / "evaluation/birds/good/0/metrics.json").read_text())
    row = page.first("tr", **{"data-method": "good", "data-network": "selected"})
    assert (
        row.first("td", **{"data-metric": "paris_hard_map"})
        .text()
        .startswith(f"{100 * metrics['paris_hard_map']:.1f}")
    )
    assert (
        f"oxford medium MAP: {100 * metrics['oxford_medium_map']:.1f}"
        in page.first("p", **{"class": "lede"}).text()
    )
    assert "95% interval over queries" in page.first("section", id="set-0-results").text()
    gallery = page.first("details", **{"data-method": "good"})
    queries = gallery.all("div", **{"class": "query"})
    assert sorted(int(query["data-row"]) for query in queries) == [30, 35, 40, 45, 50, 55]
    for query in queries:
        query_row = int(query["data-row"])
        for match in query.all("li"):
            row_id = int(match["data-row"])
            assert row_id != query_row + 4, "junk is neither correct nor incorrect"
            assert match["class"] == f"match {'right' if query_row < row_id < query_row + 4 else 'wrong'}"
        assert "first right" not in query.text()
