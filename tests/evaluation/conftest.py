"""Rows, engines and result files of evaluations."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unseen.evaluation.metrics import PerQuery, Rows, exact_search, per_query

Engine = Literal["counting", "search"]


@pytest.fixture(params=["counting", "search"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def per_query_by(
    engine: Engine, queries: Rows, gallery: Rows, recall_at: tuple[int, ...], **options: Any
) -> PerQuery:
    """The metrics by counted ranks, or by exact neighbours."""
    search = partial(exact_search, gallery) if engine == "search" else None
    return per_query(queries, gallery, recall_at, search=search, **options)


def rows(embeddings: np.ndarray, labels: np.ndarray, ids: np.ndarray | None = None) -> Rows:
    """Rows with ids from 0 by default."""
    return Rows(np.arange(len(labels)) if ids is None else ids, np.asarray(labels, np.int64), embeddings)


def read_results(directory: Path) -> tuple[pa.Table, pa.Table]:
    """Queries and neighbours of an evaluation, which has exactly the expected files."""
    assert sorted(path.name for path in directory.iterdir()) == [
        "digests.json",
        "metrics.json",
        "neighbours.parquet",
        "protocol.json",
        "queries-features.parquet",
        "queries-last.parquet",
        "queries-untrained.parquet",
        "queries.parquet",
    ]
    return pq.read_table(directory / "queries.parquet"), pq.read_table(directory / "neighbours.parquet")
