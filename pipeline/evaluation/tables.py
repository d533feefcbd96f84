"""Per-query results as Parquet: what a report needs to find the worst queries and show what was retrieved for them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.evaluation.metrics import PerQuery
from pipeline.runtime.files import atomic_file


def write_queries(path: Path, result: PerQuery) -> None:
    """One row per query: row_id, label, relevant (R), recall_at_<K>, r_precision, ap_at_r, ap (of the whole ranking, where it was asked for),
    first_positive (rank from 1).

    Null where a lone query has no such value, and in first_positive where not the whole ranking was asked for and the rank is beyond max(K, R).
    """
    lone = result.relevant == 0
    columns = {
        "row_id": pa.array(result.row_id),
        "label": pa.array(result.label),
        "relevant": pa.array(result.relevant),
        **{f"recall_at_{k}": pa.array(result.recall[:, c] == 1, mask=lone) for c, k in enumerate(result.recall_at)},
        "r_precision": pa.array(result.r_precision, mask=lone),
        "ap_at_r": pa.array(result.ap_at_r, mask=lone),
        **({} if result.ap is None else {"ap": pa.array(result.ap, mask=lone)}),
        "first_positive": pa.array(result.first, mask=result.first == 0),
    }
    write_table(path, pa.table(columns))


def file_of(network: str) -> str:
    """The per-query file of a model other than the selected one, whose file is queries.parquet."""
    return f"queries-{network}.parquet"


def write_neighbours(path: Path, result: PerQuery) -> None:
    """One row per query: row_id, neighbours (row ids, best first), similarities (the same length; shorter where the gallery is)."""
    held = result.neighbours >= 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int32))
    columns = {
        "row_id": pa.array(result.row_id),
        "neighbours": pa.ListArray.from_arrays(offsets, pa.array(result.neighbours[held])),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[held])),
    }
    write_table(path, pa.table(columns))


def write_table(path: Path, table: pa.Table) -> None:
    """A Parquet file that appears whole or not at all."""
    with atomic_file(path) as aside:
        pq.write_table(table, aside)
