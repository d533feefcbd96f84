"""The embedding file: what a network leaves behind, and all that evaluation reads.

An uncompressed Arrow IPC file of one record batch: row_id int64, label int64, embedding fixed-size list of float32, is_query and is_gallery bool
(which side of retrieval an image stands on; both, unless its data set says otherwise), in ascending row_id. A method that pools by prototypes adds
attributes, fixed-size list of float32: how much of each prototype an image was found to hold. Descriptors of several scales of each image say so in
the metadata `scales` of the schema, a JSON list.
Reading maps it: embeddings are not copied, whatever their size. Same rows, same bytes.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Float32, Int64

from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file

UNIT = 1e-3  # most that a stored norm may differ from 1; float32 normalisation is off by 1e-6


class Embeddings(NamedTuple):
    """N embedded images of one split. The arrays of a file that was read are views of it and read-only."""

    row_id: Int64[np.ndarray, "N"]
    label: Int64[np.ndarray, "N"]
    embedding: Float32[np.ndarray, "N D"]
    is_query: Bool[np.ndarray, "N"]
    is_gallery: Bool[np.ndarray, "N"]
    attributes: Float32[np.ndarray, "N M"] | None = None
    scales: tuple[float, ...] = (1.0,)


def write(
    path: Path,
    row_ids: Int64[np.ndarray, "N"],
    labels: Int64[np.ndarray, "N"],
    embeddings: Float32[np.ndarray, "N D"],
    is_query: Bool[np.ndarray, "N"] | None = None,
    is_gallery: Bool[np.ndarray, "N"] | None = None,
    attributes: Float32[np.ndarray, "N M"] | None = None,
    scales: tuple[float, ...] = (1.0,),
) -> None:
    """Writes the rows; None: every row is a query and in the gallery. Raises UserError as `check` does."""
    check(str(path), row_ids, embeddings, attributes)
    every = np.ones(len(row_ids), bool)
    columns = [
        pa.array(row_ids),
        pa.array(labels),
        _lists(embeddings),
        pa.array(every if is_query is None else is_query),
        pa.array(every if is_gallery is None else is_gallery),
    ]
    if attributes is not None:
        columns.append(_lists(attributes))
    said = None if scales == (1.0,) else {"scales": json.dumps(scales)}
    batch = pa.record_batch(columns, names=list(Embeddings._fields[: len(columns)]), metadata=said)
    with atomic_file(path) as aside, pa.OSFile(str(aside), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)


def read(path: Path) -> Embeddings:
    """The rows of a file, mapped. Raises UserError where it is missing, cut short, of another form, or holds what `write` refuses."""
    path = Path(path)
    remedy = "Run `dvc repro` to export it anew."
    if not path.is_file():
        raise UserError(f"{path} is missing.", remedy)
    try:
        reader = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path} is not a whole Arrow file: {error}.", remedy) from error
    schema = reader.schema
    dim, extra = (
        schema.field(name).type.list_size if name in schema.names and pa.types.is_fixed_size_list(schema.field(name).type) else 0
        for name in ("embedding", "attributes")
    )
    types = [pa.int64(), pa.int64(), pa.list_(pa.float32(), dim), pa.bool_(), pa.bool_(), *([pa.list_(pa.float32(), extra)] if extra else [])]
    if not schema.equals(pa.schema(zip(Embeddings._fields, types, strict=False))) or len(batches) != 1:
        found = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise UserError(f"{path} is no embedding file: it holds {len(batches)} batches of {found}.", remedy)
    batch = batches[0]
    row_id, label = (batch.column(name).to_numpy(zero_copy_only=True) for name in ("row_id", "label"))
    is_query, is_gallery = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("is_query", "is_gallery"))
    embedding, attributes = _rows(batch, "embedding", dim), _rows(batch, "attributes", extra) if extra else None
    said = (schema.metadata or {}).get(b"scales", b"[1.0]").decode(errors="replace")
    try:
        scales = tuple(float(scale) for scale in json.loads(said))
    except (ValueError, TypeError):
        scales = ()
    if not scales:
        raise UserError(f"{path} says scales {said}, which is no list of numbers.", remedy)
    check(str(path), row_id, embedding, attributes)
    return Embeddings(row_id, label, embedding, is_query, is_gallery, attributes, scales)


def _lists(values: Float32[np.ndarray, "N D"]) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1])


def _rows(batch: pa.RecordBatch, name: str, width: int) -> Float32[np.ndarray, "N D"]:
    rows: np.ndarray = batch.column(name).flatten().to_numpy(zero_copy_only=True).reshape(batch.num_rows, width)
    return rows


def check(
    where: str,
    row_ids: Int64[np.ndarray, "N"],
    embeddings: Float32[np.ndarray, "N D"],
    attributes: Float32[np.ndarray, "N M"] | None = None,
) -> None:
    """Raises UserError, beginning with `where`, unless there are rows, their ids ascend, every embedding is a finite unit vector and every attribute
    finite."""
    if not len(row_ids):
        raise UserError(f"{where} holds no row.", "The split has no image: look at the counts in the manifest of the shards.")
    if (row_ids[1:] <= row_ids[:-1]).any():
        raise UserError(
            f"{where}: row id {row_ids[1:][row_ids[1:] <= row_ids[:-1]][0]} follows one that is not smaller.",
            "Write each row once, sorted by row id.",
        )
    norms = np.sqrt(np.einsum("nd,nd->n", embeddings, embeddings))
    bad = ~(np.abs(norms - 1) <= UNIT)  # true for NaN
    if bad.any():
        row_id, norm = row_ids[bad][0], norms[bad][0]
        raise UserError(
            f"{where}: the embedding of row id {row_id} has norm {norm:g}, not 1 (so have {np.count_nonzero(bad):,} of {len(bad):,} rows).",
            "The network diverged or its embedding is zero: look at the training history, lower the learning rate, train again.",
        )
    if attributes is not None and not np.isfinite(attributes).all():
        raise UserError(
            f"{where}: the attributes of row id {row_ids[~np.isfinite(attributes).all(axis=1)][0]} are not finite.",
            "The network diverged: look at the training history, lower the learning rate, train again.",
        )
