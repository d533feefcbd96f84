"""Vectors that are on the disk already, by the sha256 of the file of their picture.

An update of a large catalog reads them in blocks: the memory contains their places, not the vectors.
"""

import shutil
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64

from unseen.runtime.files import atomic_file, regular
from unseen.runtime.memory import lacks_memory
from unseen.runtime.names import printable

T = TypeVar("T")

Rows = Callable[[Int64[np.ndarray, "P"]], Float32[np.ndarray, "P D"]]
BLOCK = 2048  # pictures of a process that are embedded before their vectors are written
_OPEN = 4  # files whose vectors are in memory


class StoredVectors:
    """The places of vectors in sources that read rows."""

    def __init__(self) -> None:
        self._sources: list[Rows] = []
        self._place: dict[str, int] = {}  # source x 2^32 + row
        self._files: set[Path] = set()

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def add(self, digests: Sequence[str], rows: Rows) -> None:
        """Adds a source: row i is the vector of digest i. A later source replaces an earlier one."""
        first = len(self._sources) << 32
        self._place.update(zip(digests, range(first, first + len(digests)), strict=True))
        self._sources.append(rows)

    def add_files(self, directory: Path, dim: int) -> None:
        """Adds the files of vectors of `dim` dimensions that `write_vectors` wrote into a directory; none
        without one. A damaged file is removed, as `read_or_remove` does."""
        for path in sorted(set(directory.glob("*.parquet")) - self._files):
            digests = read_or_remove(path, partial(_digests, dim=dim))
            if digests is not None:
                self.add(digests, _file_rows(path))
                self._files.add(path)

    def vectors(self, digests: Sequence[str]) -> Float32[np.ndarray, "P D"]:
        """The vectors of these pictures. Raises KeyError for one that is not stored."""
        places = np.array([self._place[digest] for digest in digests], np.int64)
        source, row = places >> 32, places & 0xFFFFFFFF
        vectors: np.ndarray | None = None
        for number in np.unique(source).tolist():
            chosen = source == number
            part = self._sources[number](row[chosen])
            if vectors is None:
                vectors = np.empty((len(digests), part.shape[1]), np.float32)
            vectors[chosen] = part
        assert vectors is not None, "no digests"
        return vectors


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
        sys.stderr.write(f"{printable(str(path))} is damaged and computed again: {printable(reason)}\n")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        return None


def write_vectors(path: Path, digests: Sequence[str], vectors: Float32[np.ndarray, "N D"]) -> None:
    """Writes vectors and the sha256 of their pictures."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    with atomic_file(path) as aside:
        pq.write_table(pa.table({"sha256": digests, "vector": rows}), aside, write_page_checksum=True)


def _digests(path: Path, dim: int) -> list[str]:
    """The digests of a file of vectors. Raises ValueError, OSError or pa.ArrowException if it is damaged."""
    table = pq.read_table(path, memory_map=False, page_checksum_verification=True)
    table.validate(full=True)
    expected = pa.schema({"sha256": pa.string(), "vector": pa.list_(pa.float32(), dim)})
    if not table.schema.equals(expected):
        raise ValueError(f"it does not contain vectors of {dim} dimensions")
    vectors = table["vector"].combine_chunks()
    if table["sha256"].null_count or vectors.null_count or vectors.values.null_count:
        raise ValueError("it has rows without a value")
    digests: list[str] = table["sha256"].to_pylist()
    return digests


@lru_cache(_OPEN)
def _vectors_of_file(path: Path, written: int) -> Float32[np.ndarray, "N D"]:
    table = pq.read_table(path, columns=["vector"], memory_map=False)
    vectors: np.ndarray = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return vectors


def _file_rows(path: Path) -> Rows:
    return lambda rows: _vectors_of_file(path, path.stat().st_mtime_ns)[rows]
