"""What was computed for pictures and is on the disk already: rows of values by the sha256 of the picture.

Vectors of catalogs and ladders are float32, the maps of frozen networks float16. The rows of a large store
are read in blocks. Each file has the sha256 of its rows in its metadata, which is compared when a store opens
the file (1.1 GB/s); a file of an earlier version has none and is computed again.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float16, Float32, Int64, Shaped

from unseen.data.tables import write_arrow
from unseen.runtime.files import atomic_file, regular
from unseen.runtime.memory import lacks_memory
from unseen.runtime.names import printable, say

T = TypeVar("T")

Rows = Callable[[Int64[np.ndarray, "P"]], Shaped[np.ndarray, "P V"]]
BLOCK = 2048  # pictures of a process that are embedded before their vectors are written
_OPEN = 4  # parquet files whose rows are in memory


class Format(NamedTuple):
    """How rows of V values and the sha256 of their pictures are in a file."""

    suffix: str
    write: Callable[[Path, Sequence[str], np.ndarray], None]
    # file, V; raises ValueError, OSError, ArrowException if damaged
    digests: Callable[[Path, int], list[str]]
    rows: Callable[[Path], Rows]


class ArrayStore:
    """Rows of V values by the sha256 of the file of their picture: in files of a directory, and in further
    sources. The memory contains their places."""

    def __init__(self, directory: Path, width: int, format: Format) -> None:
        """width: V. The files of the directory are known after `refresh`."""
        self.directory, self.width, self._format = directory, width, format
        self._sources: list[Rows] = []
        self._place: dict[str, int] = {}  # source x 2^32 + row
        self._files: set[Path] = set()

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def add(self, digests: Sequence[str], rows: Rows) -> None:
        """Adds a source: row i belongs to digest i. A later source replaces an earlier one."""
        first = len(self._sources) << 32
        self._place.update(zip(digests, range(first, first + len(digests)), strict=True))
        self._sources.append(rows)

    def refresh(self) -> None:
        """Adds the new files of the directory; none without one. A damaged file is removed, as
        `read_or_remove` does."""
        for path in sorted(set(self.directory.glob(f"*{self._format.suffix}")) - self._files):
            digests = read_or_remove(path, lambda path: self._format.digests(path, self.width))
            if digests is not None:
                self.add(digests, self._format.rows(path))
                self._files.add(path)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """The pictures without a row, each once."""
        return [digest for digest in dict.fromkeys(digests) if digest not in self]

    def fill(
        self, path_of: Mapping[str, Path], block: int, compute: Callable[[list[Path], int], np.ndarray]
    ) -> None:
        """Computes the rows of all missing pictures and writes a file for each `block` of them, so that a
        killed run continues.

        path_of: the file of each picture by its sha256. Arguments of `compute`: files, and the number of
        pictures that were missing before them.
        """
        new = self.missing(path_of)
        for start in range(0, len(new), block):
            digests = new[start : start + block]
            values = compute([path_of[digest] for digest in digests], start)
            self._format.write(self.directory / f"{digests[0]}{self._format.suffix}", digests, values)
        self.refresh()

    def places(self, digests: Sequence[str]) -> Int64[np.ndarray, "P"]:
        """The places of pictures, for `at`. Raises KeyError for one that is not stored."""
        return np.array([self._place[digest] for digest in digests], np.int64)

    def at(self, places: Int64[np.ndarray, "P"]) -> Shaped[np.ndarray, "P V"]:
        """The rows at places."""
        source, row = places >> 32, places & 0xFFFFFFFF
        values: np.ndarray | None = None
        for number in np.unique(source).tolist():
            chosen = source == number
            part = self._sources[number](row[chosen])
            if values is None:
                values = np.empty((len(places), part.shape[1]), part.dtype)
            values[chosen] = part
        assert values is not None, "no places"
        return values

    def rows(self, digests: Sequence[str]) -> Shaped[np.ndarray, "P V"]:
        """The rows of these pictures. Raises KeyError for one that is not stored."""
        return self.at(self.places(digests))


def read_or_remove(path: Path, read: Callable[[Path], T]) -> T | None:
    """`read` of a file whose content can be computed again; None if it is damaged. Then it is removed, with a
    line on the standard error. A problem of the system raises OSError."""
    try:
        return read(regular(path))
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        is_of_system = isinstance(error, OSError) and error.errno is not None and path.is_file()
        if is_of_system or lacks_memory(error, path):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        say(f"{printable(str(path))} is damaged and computed again: {printable(reason)}")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return None


def _columns(name: str, digests: Sequence[str], values: Shaped[np.ndarray, "N V"]) -> pa.Table:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    table = pa.table({"sha256": list(digests), name: rows})
    return table.replace_schema_metadata({"sha256": _sha256(digests, values)})


def _sha256(digests: Sequence[str], values: Shaped[np.ndarray, "..."]) -> str:
    """The sha256 of the digests, one a line, and of the values."""
    digest = hashlib.sha256("\n".join(digests).encode())
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()


def _checked(table: pa.Table, name: str, kind: pa.DataType, width: int) -> list[str]:
    """The digests of the pictures in a table. Raises ValueError or pa.ArrowException if it is damaged."""
    table.validate(full=True)
    expected = pa.schema({"sha256": pa.string(), name: pa.list_(kind, width)})
    if not table.schema.equals(expected):
        raise ValueError(f"it does not contain rows of {width} values")
    values = table[name].combine_chunks()
    if table["sha256"].null_count or values.null_count or values.values.null_count:
        raise ValueError("it has rows without a value")
    digests: list[str] = table["sha256"].to_pylist()
    written = (table.schema.metadata or {}).get(b"sha256", b"")
    if _sha256(digests, values.flatten().to_numpy()).encode() != written:
        raise ValueError("its rows have another sha256 than the written ones")
    return digests


def _write_parquet(path: Path, digests: Sequence[str], values: Float32[np.ndarray, "N V"]) -> None:
    with atomic_file(path) as aside:
        pq.write_table(_columns("vector", digests, values), aside, write_page_checksum=True)


def _parquet_digests(path: Path, width: int) -> list[str]:
    table = pq.read_table(path, memory_map=False, page_checksum_verification=True)
    return _checked(table, "vector", pa.float32(), width)


@lru_cache(_OPEN)
def _parquet_values(path: Path, written: int) -> Float32[np.ndarray, "N V"]:
    table = pq.read_table(path, columns=["vector"], memory_map=False)
    values: np.ndarray = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return values


def _parquet_rows(path: Path) -> Rows:
    return lambda rows: _parquet_values(path, path.stat().st_mtime_ns)[rows]


def _write_arrow(path: Path, digests: Sequence[str], values: Float16[np.ndarray, "N V"]) -> None:
    write_arrow(path, _columns("values", digests, values))


def _arrow_digests(path: Path, width: int) -> list[str]:
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
        if len(table["values"].chunks) != 1:
            raise ValueError("it does not contain one block of values")
        return _checked(table, "values", pa.float16(), width)


def _arrow_rows(path: Path) -> Rows:
    """The operating system keeps as much of the file in memory as fits."""
    (chunk,) = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["values"].chunks
    width = chunk.type.list_size
    values: np.ndarray = chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, width)
    return lambda rows: values[rows]


# Vectors: `sha256` and `vector` in parquet with checksums. Maps: `sha256` and `values`, memory-mapped.
VECTORS = Format(".parquet", _write_parquet, _parquet_digests, _parquet_rows)
MAPS = Format(".arrow", _write_arrow, _arrow_digests, _arrow_rows)
