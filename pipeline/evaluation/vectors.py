"""Vectors and labels of any tool as the two sides of retrieval.

Arrow (IPC file, Feather) or Parquet: columns `label` (integers or text) and `embedding` (lists of numbers,
all of one length); optional are `row_id` (integers, unique), `is_query` and `is_gallery` (bool). The
embedding files of stage `export` have this form. NumPy: an (N, D) array in a .npy file, and the labels in a
second file: .npy (integers or text), or .txt with one label a line.

Rows without row_id are numbered in the order of the file. Text labels are numbered in sorted order. Vectors
are compared as float32.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Float64, Int64

from unseen.data.embeddings import UNIT
from unseen.data.labels import lines_of
from unseen.evaluation.metrics import Rows
from unseen.evaluation.sides import Sides
from unseen.evaluation.tables import ARROW, read_table
from unseen.runtime.errors import UserError
from unseen.runtime.files import regular

COLUMNS = "label, embedding, and optionally row_id, is_query, is_gallery"
COLUMN_NAMES = ("label", "embedding", "row_id", "is_query", "is_gallery")
_PARQUET = (".parquet", ".pq")


def read_vectors(path: Path, labels: Path | None = None, normalize: bool = False) -> Sides:
    """The sides of a file. `labels` is the second file of a .npy file.

    Raises UserError for a file that is missing, damaged or of another format, without labels, or with rows
    that `sides_of_arrays` refuses.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (*_PARQUET, *ARROW, ".npy"):
        raise UserError(
            f"{path}: the format {suffix or 'without suffix'} is not read.",
            f"Write the vectors as Parquet or Arrow (columns {COLUMNS}), or as .npy with --labels.",
        )
    if suffix == ".npy":
        if labels is None:
            raise UserError(f"{path} contains no labels.", "Name their file with --labels (.npy or .txt).")
        return sides_of_arrays(_npy(path), _labels(labels), str(path), normalize)
    if labels is not None:
        raise UserError(
            f"{path} has a column of labels; --labels belongs to a .npy file.", "Leave out --labels."
        )
    table = read_table(path, "Write the file again.")
    missing = [name for name in ("label", "embedding") if name not in table.column_names]
    if missing:
        raise UserError(
            f"{path} has no column {' and no column '.join(missing)}; its columns are "
            f"{', '.join(table.column_names)}.",
            f"Write the columns {COLUMNS}.",
        )
    for name in dict.fromkeys(table.column_names):
        if name in COLUMN_NAMES and (count := table.column_names.count(name)) > 1:
            raise UserError(f"{path} has {count} columns {name}.", "Write each column once.")
    optional = {
        argument: _column(path, table, name)
        for name, argument in (
            ("row_id", "row_ids"),
            ("is_query", "is_query"),
            ("is_gallery", "is_gallery"),
        )
        if name in table.column_names
    }
    vectors, of_rows = _vectors(path, table["embedding"]), _column(path, table, "label")
    return sides_of_arrays(vectors, of_rows, str(path), normalize, **optional)


def sides_of_arrays(
    embeddings: np.ndarray,
    labels: Sequence[Any] | np.ndarray,
    where: str = "the embeddings",
    normalize: bool = False,
    row_ids: np.ndarray | None = None,
    is_query: np.ndarray | None = None,
    is_gallery: np.ndarray | None = None,
) -> Sides:
    """The sides of (N, D) vectors with N labels. A side that is None contains every row.

    normalize: divide each vector by its length, in float64, for lengths of any magnitude. Otherwise vectors
    must have the length 1 (to 1e-3) and keep their bits. `where` begins the messages.

    Raises UserError if there is no row, the values are not real numbers, the numbers of vectors and labels
    differ, a label or a value of a vector is missing, a row id occurs twice, or a vector is zero or, unless
    `normalize`, has another length.
    """
    labels = np.asarray(labels)
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu":
        raise UserError(
            f"{where}: the shape is {embeddings.shape} of {embeddings.dtype}, expected (rows, dimensions) of "
            "real numbers.",
            "Write one row of numbers per image.",
        )
    if not embeddings.size:
        raise UserError(f"{where}: there is no vector.", "Write one row per image.")
    if labels.shape != (len(embeddings),):
        raise UserError(
            f"{where}: {len(embeddings):,} vectors, but labels of shape {labels.shape}.",
            "Write one label per vector, in the same order.",
        )
    rows = np.arange(len(labels), dtype=np.int64) if row_ids is None else row_ids.astype(np.int64)
    ids, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise UserError(f"{where}: row id {ids[counts > 1][0]} occurs twice.", "Write each row once.")
    numbered = _numbered(labels, where)
    every_row = np.ones(len(rows), bool)
    unit = _unit(embeddings, where, normalize)
    queries, gallery = (
        Rows(rows, numbered, unit) if side.all() else Rows(rows[side], numbered[side], unit[side])
        for side in (every_row if side is None else side for side in (is_query, is_gallery))
    )
    return Sides(queries, gallery)


def _unit(embeddings: np.ndarray, where: str, normalize: bool) -> Float32[np.ndarray, "N D"]:
    if embeddings.dtype.itemsize > 8:  # longdouble; a value beyond float64 becomes infinity
        with np.errstate(over="ignore"):
            embeddings = embeddings.astype(np.float64)
    finite = np.isfinite(embeddings).all(axis=1)
    if not finite.all():
        raise UserError(
            f"{where}: {np.count_nonzero(~finite):,} of {len(finite):,} vectors contain NaN or infinity, the "
            f"first in row {int(np.flatnonzero(~finite)[0])}.",
            "Repair the tool that wrote them, or leave these rows out.",
        )
    if normalize:
        return _normalised(embeddings, where)
    with np.errstate(over="ignore"):  # a length of infinity is refused
        embeddings = np.ascontiguousarray(embeddings, np.float32)
        norms = _norms(embeddings)
    other = np.abs(norms - 1) > UNIT
    if other.any():
        row = int(np.flatnonzero(other)[0])
        raise UserError(
            f"{where}: {np.count_nonzero(other):,} of {len(other):,} vectors do not have the length 1; "
            f"row {row} has {norms[row]:g}.",
            "Divide each vector by its length, or let --normalize do it.",
        )
    return embeddings


def _normalised(embeddings: np.ndarray, where: str) -> Float32[np.ndarray, "N D"]:
    """Each vector divided by its length."""
    with np.errstate(over="ignore", under="ignore"):
        norms = _norms(embeddings)
    # The squares of these over- or underflow: a power of two, which rounds nothing, scales them before.
    extreme = np.flatnonzero((norms < 1e-140) | (norms > 1e140))
    if len(extreme):
        embeddings = embeddings.astype(np.float64)
        exponents = np.frexp(np.abs(embeddings[extreme]).max(axis=1))[1]
        embeddings[extreme] = np.ldexp(embeddings[extreme], -exponents[:, None])
        norms[extreme] = _norms(embeddings[extreme])
    if not norms.all():
        row = int(np.flatnonzero(norms == 0)[0])
        raise UserError(f"{where}: the vector of row {row} is zero.", "Leave this row out.")
    return (embeddings / norms[:, None]).astype(np.float32)


def _norms(embeddings: np.ndarray) -> Float64[np.ndarray, "N"]:
    norms: np.ndarray = np.sqrt(np.einsum("nd,nd->n", embeddings, embeddings, dtype=np.float64))
    return norms


def _numbered(labels: np.ndarray, where: str) -> Int64[np.ndarray, "N"]:
    """Integer labels as they are, text numbered in sorted order."""
    if np.issubdtype(labels.dtype, np.integer):
        return labels.astype(np.int64)
    if labels.dtype.kind not in "UO" or not all(
        isinstance(label, str) and label for label in labels.tolist()
    ):
        wrong = [row for row, label in enumerate(labels.tolist()) if not isinstance(label, str) or not label]
        place = f"row {wrong[0]} has {labels.tolist()[wrong[0]]!r}" if wrong else f"they are {labels.dtype}"
        raise UserError(
            f"{where}: labels must be integers or text; {place}.", "Write the class of every image."
        )
    return np.unique(labels.astype(str), return_inverse=True)[1].astype(np.int64)


def _npy(path: Path) -> np.ndarray:
    try:
        values: np.ndarray = np.load(regular(path), mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of the parsers of the header too: SyntaxError, TokenError, ...
        raise UserError(f"{path} cannot be read: {error}.", "Write it with numpy.save.") from error
    return values


def _labels(path: Path) -> np.ndarray:
    if path.suffix.lower() == ".npy":
        return _npy(path)
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}.", "Write one label a line, in UTF-8.") from error
    return np.array(lines_of(content, str(path)), dtype=object)


def _column(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """A column of integers, text or bool."""
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise UserError(f"{path}: column {name} has no value in row {row}.", "Fill every row.")
    kinds = {"label": "integers or text", "row_id": "integers"}.get(name, "bool")
    if (
        (name == "label" and not (pa.types.is_integer(column.type) or _is_text(column.type)))
        or (name == "row_id" and not pa.types.is_integer(column.type))
        or (name.startswith("is_") and not pa.types.is_boolean(column.type))
    ):
        raise UserError(f"{path}: column {name} contains {column.type}, expected {kinds}.", "Convert it.")
    values: np.ndarray = column.to_numpy()
    return values


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _vectors(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    """(N, D) values of a column of lists."""
    kind = column.type
    is_list = any(
        test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise UserError(
            f"{path}: column embedding contains {kind}, expected lists of numbers.", "Convert it."
        )
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise UserError(f"{path}: column embedding has no value in row {row}.", "Leave this row out.")
    lists = column.combine_chunks()
    values = lists.flatten()
    if values.null_count:
        raise UserError(f"{path}: {values.null_count:,} values of vectors are missing.", "Fill them.")
    if not pa.types.is_fixed_size_list(kind):
        lengths = lists.value_lengths().to_numpy()
        if (lengths != lengths[:1]).any():
            row = int(np.flatnonzero(lengths != lengths[0])[0])
            raise UserError(
                f"{path}: the vector of row 0 has {lengths[0]:,} dimensions, "
                f"that of row {row} {lengths[row]:,}.",
                "Write vectors of one model, with equally many dimensions.",
            )
    dim = len(values) // max(1, len(column))
    return values.to_numpy(zero_copy_only=False).reshape(len(column), dim)
