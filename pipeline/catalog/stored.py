"""Vectors that are on the disk already, by the sha256 of the file of their picture.

An update of a large catalog reads them in blocks: the memory contains their places, not the vectors.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int64

from pipeline.runtime.files import atomic_file

Rows = Callable[[Int64[np.ndarray, "P"]], Float32[np.ndarray, "P D"]]
_OPEN = 4  # files whose vectors are in memory


class StoredVectors:
    """The places of vectors in sources that read rows."""

    def __init__(self) -> None:
        self._sources: list[Rows] = []
        self._place: dict[str, int] = {}  # source x 2^32 + row

    def __contains__(self, digest: str) -> bool:
        return digest in self._place

    def add(self, digests: Sequence[str], rows: Rows) -> None:
        """Adds a source: row i is the vector of digest i. A later source replaces an earlier one."""
        first = len(self._sources) << 32
        self._place.update(zip(digests, range(first, first + len(digests)), strict=True))
        self._sources.append(rows)

    def add_files(self, directory: Path) -> None:
        """Adds the files that `write_vectors` wrote into a directory; none without one."""
        for path in sorted(directory.glob("*.parquet")):
            self.add(pq.read_table(path, columns=["sha256"])["sha256"].to_pylist(), _file_rows(path))

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


def write_vectors(path: Path, digests: Sequence[str], vectors: Float32[np.ndarray, "N D"]) -> None:
    """Writes vectors and the sha256 of their pictures."""
    rows = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    with atomic_file(path) as aside:
        pq.write_table(pa.table({"sha256": digests, "vector": rows}), aside)


@lru_cache(_OPEN)
def _vectors_of_file(path: Path, written: int) -> Float32[np.ndarray, "N D"]:
    table = pq.read_table(path, columns=["vector"], memory_map=False)
    vectors: np.ndarray = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    return vectors


def _file_rows(path: Path) -> Rows:
    return lambda rows: _vectors_of_file(path, path.stat().st_mtime_ns)[rows]
