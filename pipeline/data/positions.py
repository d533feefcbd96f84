"""The positions file: which positions of test images determine their embeddings, by one network.

An uncompressed Arrow IPC file with one record batch, sorted by row_id, one row per map:

    row_id     int64            the image
    label      int64            its class
    source     string           its path within the data set
    region     4 x float32      left, top, right, bottom of the input as shares of the image
    name       string           contribution, projection, transported mass, ...
    detail     bool             the map of one prototype or one point
    height, width  int32        of the map
    weights    list of float32  of the height x width positions, in row-major order
    reference  int64            the match or query with which the image is compared: contributions are those
                                to their similarity; null: the image itself
    prototype  list of int32    of each position, the prototype that receives most of its mass; null: none
    point      2 x float32      x and y of the attending point, as shares of the input; null: none

The first map of an image is that of its method. The metadata `queries` of the schema is a JSON list of
queries with their nearest right and wrong match; `schema_version` is that of the file, and `sha256` that of
its rows and queries, which `read` compares. Equal maps give equal bytes.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int32

from unseen.data.tables import read_table, write_arrow
from unseen.runtime.errors import UserError
from unseen.runtime.sealed import restore

SCHEMA_VERSION = 2
SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("label", pa.int64()),
        ("source", pa.string()),
        ("region", pa.list_(pa.float32(), 4)),
        ("name", pa.string()),
        ("detail", pa.bool_()),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("weights", pa.list_(pa.float32())),
        ("reference", pa.int64()),
        ("prototype", pa.list_(pa.int32())),
        ("point", pa.list_(pa.float32(), 2)),
    ]
)
_OPTIONAL = ("reference", "prototype", "point")
_REMEDY = "Run `dvc repro` to export it again."


@dataclass(frozen=True)
class PositionMap:
    """The weights of the positions of one image."""

    row_id: int
    label: int
    source: str
    region: tuple[float, float, float, float]
    name: str
    weights: Float32[np.ndarray, "H W"]
    detail: bool = False
    reference: int | None = None
    prototype: Int32[np.ndarray, "H W"] | None = None
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class Match:
    row_id: int
    similarity: float


@dataclass(frozen=True)
class QueryMatches:
    """A query with the nearest right and the nearest wrong image; None: there is none."""

    row_id: int
    right: Match | None
    wrong: Match | None


@dataclass(frozen=True)
class Positions:
    """The content of a file."""

    maps: tuple[PositionMap, ...]
    queries: tuple[QueryMatches, ...]


def write(path: Path, positions: Positions) -> None:
    """Writes the file. Raises UserError for weights that are not finite."""
    for each in positions.maps:
        if not np.isfinite(each.weights).all():
            raise UserError(
                f"{path}: the weights `{each.name}` of row id {each.row_id} are not finite.",
                "The network diverged. See the training history, lower the learning rate and train again.",
            )
    rows = [_row(each) for each in sorted(positions.maps, key=lambda each: each.row_id)]
    queries = json.dumps([asdict(query) for query in positions.queries])
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    metadata = {
        "schema_version": str(SCHEMA_VERSION),
        "queries": queries,
        "sha256": _sha256(batch.to_pylist(), queries),
    }
    batch = batch.replace_schema_metadata(metadata)
    write_arrow(path, batch)


def read(path: Path) -> Positions:
    """The maps and queries of a file. Raises UserError if it is missing, truncated, or of another format or
    schema version, or if its rows or queries have another sha256 than the written ones."""
    table = read_table(path, _REMEDY)
    metadata = table.schema.metadata or {}
    version = metadata.get(b"schema_version", b"none").decode(errors="replace")
    if version != str(SCHEMA_VERSION):
        raise UserError(f"{path} has schema version {version}, expected {SCHEMA_VERSION}.", _REMEDY)
    if not table.schema.equals(SCHEMA):
        raise UserError(f"{path} is not a positions file: its columns are {table.schema.names}.", _REMEDY)
    empty = [name for name in table.column_names if name not in _OPTIONAL and table[name].null_count]
    if empty:
        raise UserError(f"{path} is damaged: column {empty[0]} has empty values.", _REMEDY)
    try:
        rows, text = table.to_pylist(), metadata.get(b"queries", b"").decode()
        if _sha256(rows, text).encode() != metadata.get(b"sha256"):
            raise UserError(f"{path} is damaged: its sha256 is not that of its content.", restore(path))
        queries = tuple(_query(value) for value in json.loads(text))
        maps = tuple(_map(row) for row in rows)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged: {error}.", _REMEDY) from error
    return Positions(maps, queries)


def _sha256(rows: list[dict[str, Any]], queries: str) -> str:
    """The sha256 of the rows and of the text of the queries, as JSON."""
    return hashlib.sha256(json.dumps([rows, queries]).encode()).hexdigest()


def _row(each: PositionMap) -> dict[str, Any]:
    height, width = each.weights.shape
    prototype = None if each.prototype is None else each.prototype.ravel()
    weights = {"height": height, "width": width, "weights": each.weights.ravel(), "prototype": prototype}
    return vars(each) | weights


def _map(row: dict[str, Any]) -> PositionMap:
    size = row.pop("height"), row.pop("width")
    for name, kind in (("weights", np.float32), ("prototype", np.int32)):
        row[name] = None if row[name] is None else np.array(row[name], kind).reshape(size)
    for name in ("region", "point"):
        row[name] = None if row[name] is None else tuple(row[name])
    return PositionMap(**row)


def _query(value: dict[str, Any]) -> QueryMatches:
    right, wrong = (None if value[name] is None else Match(**value[name]) for name in ("right", "wrong"))
    return QueryMatches(value["row_id"], right, wrong)
