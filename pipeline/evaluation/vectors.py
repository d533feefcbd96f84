"""Vectors and labels of any tool as the two sides of retrieval.

Arrow (IPC file or stream, Feather) or Parquet, or a folder of such files: columns `label` (integers or text)
and `embedding` (lists of numbers, all of one length); optional are `row_id` (integers, unique), `is_query`
and `is_gallery` (bool). The embedding files of stage `export` have this form. NumPy: an (N, D) array in a
.npy file, and the labels in a second file: .npy (integers or text), or .txt with one label a line.

Rows without row_id are numbered in the order of the file. Text labels are numbered in sorted order. Vectors
are compared as float32.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float32, Float64, Int64

from unseen.data.embeddings import UNIT
from unseen.data.labels import alike, labels_in, normal, read
from unseen.data.tables import TABLES, read_table, table_files
from unseen.evaluation.metrics import Rows
from unseen.evaluation.sides import Sides
from unseen.runtime.errors import UserError
from unseen.runtime.files import regular
from unseen.runtime.names import say

COLUMNS = "label, embedding, and optionally row_id, is_query, is_gallery"
ONE_MODEL = "Write vectors of one model, with equally many dimensions."
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


class Vectors(NamedTuple):
    """Vectors and labels of N images, as a tool wrote them. A side that is None contains every image."""

    embedding: np.ndarray  # (N, D)
    label: np.ndarray  # integers or text
    row_id: np.ndarray | None = None
    is_query: np.ndarray | None = None
    is_gallery: np.ndarray | None = None
    where: str = "the embeddings"  # begins the messages


COLUMN_NAMES = Vectors._fields[:-1]


def read_vectors(path: Path, labels: Path | None = None) -> Vectors:
    """The content of a file, or of all tables below a folder in the order of their names. `labels` is the
    second file of a .npy file.

    Raises UserError for a file that is missing, damaged or of another format, or without labels.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if not path.exists():
        raise UserError(f"{path} does not exist.", "Correct the path.")
    if not path.is_dir() and suffix not in (*TABLES, ".npy"):
        raise UserError(
            f"{path}: the format {suffix or 'without suffix'} is not read.",
            f"Write the vectors as Parquet or Arrow (columns {COLUMNS}), or as .npy with --labels.",
        )
    if suffix == ".npy" and not path.is_dir():
        if labels is None:
            raise UserError(f"{path} contains no labels.", "Name their file with --labels (.npy or .txt).")
        return Vectors(_npy(path), np.asarray(_labels(labels)), where=str(path))
    if labels is not None:
        raise UserError(
            f"{path} has a column of labels; --labels belongs to a .npy file.", "Leave out --labels."
        )
    parts = [_read(file) for file in table_files(path)]
    return parts[0] if len(parts) == 1 else _joined(path, parts)


def _joined(path: Path, parts: list[Vectors]) -> Vectors:
    """The rows of all files of a folder. Raises UserError if their columns or dimensions differ."""
    columns: dict[str, Any] = {}
    for name, of_files in zip(COLUMN_NAMES, zip(*(part[:-1] for part in parts), strict=True), strict=True):
        absent = [part.where for part, values in zip(parts, of_files, strict=True) if values is None]
        if 0 < len(absent) < len(parts):
            raise UserError(f"{absent[0]} has no column {name}, unlike other files of {path}.", "Add it.")
        widths = [values.shape[1:] for values in of_files if values is not None]
        if len(set(widths)) > 1:
            raise UserError(f"The files of {path} have vectors of {sorted(set(widths))}.", ONE_MODEL)
        columns[name] = None if absent else np.concatenate(of_files)
    return Vectors(**columns, where=str(path))


def _read(path: Path) -> Vectors:
    table = read_table(path, "Write the file again.")
    missing = [name for name in COLUMN_NAMES[:2] if name not in table.column_names]
    if missing:
        raise UserError(
            f"{path} has no column {' and no column '.join(missing)}; its columns are "
            f"{', '.join(table.column_names)}.",
            f"Write the columns {COLUMNS}.",
        )
    for name in dict.fromkeys(table.column_names):
        if name in COLUMN_NAMES and (count := table.column_names.count(name)) > 1:
            raise UserError(f"{path} has {count} columns {name}.", "Write each column once.")
    columns: dict[str, Any] = {
        name: column_of(path, table, name) for name in COLUMN_NAMES[1:] if name in table.column_names
    }
    return Vectors(matrix_of(path, table["embedding"]), **columns, where=str(path))


def sides_of(vectors: Vectors, normalize: bool = False, gallery: Vectors | None = None) -> Sides:
    """The sides of vectors: their queries, and their gallery or that of the images of `gallery`, which are
    then other images, whatever their row ids.

    Raises UserError if there is no row, the values are not real numbers, the numbers of vectors and labels
    differ, a label is missing, a row id occurs twice, for vectors that `unit_vectors` refuses, or if the
    kinds of labels or the dimensions of the two differ.
    """
    both = [vectors] if gallery is None else [vectors, gallery]
    ids = [_row_ids(each) for each in both]
    labels = _numbered(both)
    units = [unit_vectors(each.embedding, each.where, normalize) for each in both]
    if gallery is not None:
        dims = [unit.shape[1] for unit in units]
        if dims[0] != dims[1]:
            raise UserError(
                f"{vectors.where} has {dims[0]:,} dimensions, {gallery.where} {dims[1]:,}.", ONE_MODEL
            )
        if min(each.min() for each in ids) < 0:
            raise UserError(f"{vectors.where} or its gallery has a negative row id.", "Number from 0.")
        ids[0] = ~ids[0]  # negative: no query is a row of the gallery
    queries, candidates = (
        Rows(ids[of], labels[of], units[of])
        if side is None or side.all()
        else Rows(ids[of][side], labels[of][side], units[of][side])
        for of, side in ((0, vectors.is_query), (-1, both[-1].is_gallery))
    )
    return Sides(queries, candidates)


def _row_ids(vectors: Vectors) -> Int64[np.ndarray, "N"]:
    """The row ids, by default in the order of the rows. Checks the shapes."""
    embeddings, where = vectors.embedding, vectors.where
    if embeddings.ndim != 2 or embeddings.dtype.kind not in "fiu":
        raise UserError(
            f"{where}: the shape is {embeddings.shape} of {embeddings.dtype}, expected (rows, dimensions) of "
            "real numbers.",
            "Write one row of numbers per image.",
        )
    if not embeddings.size:
        raise UserError(f"{where}: there is no vector.", "Write one row per image.")
    for name, values in zip(COLUMN_NAMES[1:], vectors[1:-1], strict=True):
        if values is not None and values.shape != (len(embeddings),):
            raise UserError(
                f"{where}: {len(embeddings):,} vectors, but {name} of shape {values.shape}.",
                "Write one value per vector, in the same order. A text file has no header.",
            )
    given = vectors.row_id
    rows = np.arange(len(embeddings), dtype=np.int64) if given is None else given.astype(np.int64)
    ids, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise UserError(f"{where}: row id {ids[counts > 1][0]} occurs twice.", "Write each row once.")
    return rows


def unit_vectors(embeddings: np.ndarray, where: str, normalize: bool) -> Float32[np.ndarray, "N D"]:
    """Vectors of length 1. where: begins the messages.

    normalize: divide each vector by its length, in float64, for lengths of any magnitude. Otherwise vectors
    must have the length 1 (to 1e-3) and keep their bits.

    Raises UserError that names the first row with NaN or infinity, of a zero vector or, unless `normalize`,
    of another length.
    """
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


def _numbered(parts: list[Vectors]) -> list[Int64[np.ndarray, "N"]]:
    """Integer labels as they are, text in form NFC and without blanks around it numbered in the
    sorted order of all parts."""
    kinds = [np.issubdtype(part.label.dtype, np.integer) for part in parts]
    if all(kinds):
        return [part.label.astype(np.int64) for part in parts]
    names: list[str] = []
    for labels, where in ((part.label, part.where) for part in parts):
        values = [normal(label) if isinstance(label, str) else label for label in labels.tolist()]
        wrong = [row for row, label in enumerate(values) if not isinstance(label, str) or not label]
        if labels.dtype.kind not in "UO" or wrong:
            given = labels.tolist()[wrong[0]] if wrong else None
            place = f"row {wrong[0]} has {given!r}" if wrong else f"they are {labels.dtype}"
            others = ", of all files the same" if any(kinds) else ""
            raise UserError(
                f"{where}: labels must be integers or text{others}; {place}.",
                "Write the class of every image.",
            )
        names += values
    if sentence := alike(names):
        say(f"{parts[0].where}: warning: {sentence}")
    numbers = np.unique(np.array(names, dtype=str), return_inverse=True)[1].astype(np.int64)
    return np.split(numbers, np.cumsum([len(part.label) for part in parts])[:-1])


def _npy(path: Path) -> np.ndarray:
    try:
        values: np.ndarray = np.load(regular(path), mmap_mode="r", allow_pickle=False)
    except Exception as error:  # of the parsers of the header too: SyntaxError, TokenError, ...
        raise UserError(f"{path} cannot be read: {error}.", "Write it with numpy.save.") from error
    return values


def _labels(path: Path) -> np.ndarray:
    if path.suffix.lower() == ".npy":
        return _npy(path)
    labels = labels_in(read(path, "Write one label a line, in UTF-8."), str(path))
    return np.array(labels, dtype=object)


def column_of(path: Path, table: pa.Table, name: str) -> np.ndarray:
    """A column of integers, text or bool. Raises UserError for another type, and for a row without value."""
    column = _decoded(table[name])
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise UserError(f"{path}: column {name} has no value in row {row}.", "Fill every row.")
    is_name = name not in COLUMN_NAMES or name == "label"
    kinds = "integers or text" if is_name else {"row_id": "integers"}.get(name, "bool")
    if (
        (is_name and not (pa.types.is_integer(column.type) or _is_text(column.type)))
        or (name == "row_id" and not pa.types.is_integer(column.type))
        or (name.startswith("is_") and not pa.types.is_boolean(column.type))
    ):
        raise UserError(f"{path}: column {name} contains {column.type}, expected {kinds}.", "Convert it.")
    values: np.ndarray = column.to_numpy()
    return values


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column of categories; any other column as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    kind = pa.large_string() if pa.types.is_string_view(kind) else kind  # categories of views have no cast
    chunks = [(chunk.indices, chunk.dictionary.cast(kind)) for chunk in column.chunks]
    return pa.chunked_array([pa.DictionaryArray.from_arrays(*chunk).cast(kind) for chunk in chunks], kind)


def _is_text(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def matrix_of(path: Path, column: pa.ChunkedArray) -> np.ndarray:
    """(N, D) values of a column of lists. Chunk by chunk: together they may have more than 2^31 values.
    Raises UserError for other values than numbers, rows of other lengths, and a row without values."""
    kind = column.type
    if not any(test(kind) for test in _LISTS) or not (
        pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)
    ):
        raise UserError(
            f"{path}: column embedding contains {kind}, expected lists of numbers.", "Convert it."
        )
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise UserError(f"{path}: column embedding has no value in row {row}.", "Leave this row out.")
    lengths = pc.list_value_length(column).to_numpy()
    if (lengths != lengths[:1]).any():
        row = int(np.flatnonzero(lengths != lengths[0])[0])
        raise UserError(
            f"{path}: the vector of row 0 has {lengths[0]:,} dimensions, that of row {row} {lengths[row]:,}.",
            ONE_MODEL,
        )
    chunks = [chunk.flatten() for chunk in column.chunks]
    if missing := sum(values.null_count for values in chunks):
        raise UserError(f"{path}: {missing:,} values of vectors are missing.", "Fill them.")
    dim = int(lengths[0]) if len(lengths) else 0
    arrays = [values.to_numpy(zero_copy_only=False).reshape(-1, max(dim, 1)) for values in chunks]
    if not arrays:
        return np.empty((len(column), dim), kind.value_type.to_pandas_dtype())
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
