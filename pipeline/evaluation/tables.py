"""Per-query results as Parquet files, one file per evaluated network."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float64, Int64

from unseen.data.tables import read_table
from unseen.evaluation.metrics import PerQuery
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file

SELECTED = "selected"  # the network whose metrics have no prefix


class Runs(NamedTuple):
    """One metric of S runs on the same Q queries; NaN for lone queries."""

    row_id: Int64[np.ndarray, "Q"]
    label: Int64[np.ndarray, "Q"]
    values: Float64[np.ndarray, "S Q"]


def file_of(network: str) -> str:
    """The name of the per-query file of a network."""
    return "queries.parquet" if network == SELECTED else f"queries-{network}.parquet"


def query_table(result: PerQuery) -> pa.Table:
    """One row per query.

    Columns: row_id, label, relevant (R), recall_at_<K>, r_precision, ap_at_r, ap (only with the full
    ranking), metrics of a user, and first_positive (1-based rank). Lone queries have null in all but the
    first three. first_positive is also null if the rank lies beyond the part of the ranking that was
    computed.
    """
    lone = result.relevant == 0
    columns = {
        "row_id": pa.array(result.row_id),
        "label": pa.array(result.label),
        "relevant": pa.array(result.relevant),
        **{
            f"recall_at_{k}": pa.array(result.recall[:, column] == 1, mask=lone)
            for column, k in enumerate(result.recall_at)
        },
        "r_precision": pa.array(result.r_precision, mask=lone),
        "ap_at_r": pa.array(result.ap_at_r, mask=lone),
        **({} if result.ap is None else {"ap": pa.array(result.ap, mask=lone)}),
        **{name: pa.array(values, mask=lone) for name, values in result.own.items()},
        "first_positive": pa.array(result.first, mask=result.first == 0),
    }
    return pa.table(columns)


def read_runs(paths: Sequence[Path], metric: str) -> Runs:
    """One column of the per-query files of several runs on the same queries, of one method or of several.

    Raises UserError if a file is missing or damaged, lacks the column, or contains other queries.
    """
    tables = [_read(path, metric) for path in paths]
    for path, table in zip(paths, tables, strict=True):
        if any(not table[column].equals(tables[0][column]) for column in ("row_id", "label")):
            raise UserError(
                f"{path} does not contain the same queries as {paths[0]}.",
                "Evaluate both on the same data set under the same protocol.",
            )
    values = [table[metric].cast(pa.float64()).to_numpy() for table in tables]  # null becomes NaN
    return Runs(tables[0]["row_id"].to_numpy(), tables[0]["label"].to_numpy(), np.stack(values))


def neighbour_table(result: PerQuery) -> pa.Table:
    """One row per query: row_id, neighbours (row ids, best first) and similarities, lists of equal length."""
    present = result.neighbours >= 0
    offsets = pa.array(np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32))
    columns = {
        "row_id": pa.array(result.row_id),
        "neighbours": pa.ListArray.from_arrays(offsets, pa.array(result.neighbours[present])),
        "similarities": pa.ListArray.from_arrays(offsets, pa.array(result.similarities[present])),
    }
    return pa.table(columns)


def write_table(path: Path, table: pa.Table) -> None:
    """Writes a Parquet file atomically."""
    with atomic_file(path) as aside:
        pq.write_table(table, aside)


def _read(path: Path, metric: str) -> pa.Table:
    table = read_table(path, "Run `dvc repro` to evaluate the run again.")
    missing = {"row_id", "label", metric} - set(table.column_names)
    if missing:
        columns = ", ".join(table.column_names)
        raise UserError(
            f"{path} has no column {', '.join(sorted(missing))}.", f"Choose one of its columns: {columns}."
        )
    return table
