"""An index of unit vectors: build, save, load, and search for the k rows of largest cosine.

The index proposes candidates (kinds.py). Each candidate gets the similarity and the order that order.py
defines, and the row that is the query is removed by its id. So a search may miss rows, but the rows that it
returns have the same similarities and order as in exact search. recall.py measures how many rows are missed.

The same gallery and setting give the same bytes if the index is built on one thread: several threads insert
into a graph in an arbitrary order.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from unseen.evaluation.index import order
from unseen.evaluation.index.exact import Neighbours, collected
from unseen.evaluation.index.kinds import prepare, propose, stores_vectors, train
from unseen.evaluation.settings import Flat, Setting

SPARE = 4  # candidates beyond k and the query itself, because FAISS orders near ties in its own way
CELLS = 1 << 20  # (query, candidate) pairs in memory at a time


class Index(NamedTuple):
    """A built index. Row i of the engine has the i-th smallest id."""

    engine: Any  # faiss.Index
    setting: Setting
    ids: Int64[np.ndarray, "N"]  # ascending
    positions: Int64[np.ndarray, "N"]  # of these rows in the gallery that `build` got
    full_vectors: Float32[np.ndarray, "N D"] | None  # of these rows; None if the engine stores them


def build(gallery: Float32[np.ndarray, "N D"], ids: Int64[np.ndarray, "N"], setting: Setting) -> Index:
    """The index of the rows. Raises UserError as `kinds.train` does, and for an id that occurs twice."""
    ascending = np.argsort(order.places(ids))
    if (ids[1:] < ids[:-1]).any():
        gallery = gallery[ascending]
    gallery = np.ascontiguousarray(gallery)
    with threads(1 if isinstance(setting, Flat) else setting.build_threads):
        engine = train(gallery, setting)
        engine.add(gallery)
    prepare(engine, setting)
    return Index(engine, setting, ids[ascending], ascending, None if stores_vectors(setting) else gallery)


def save(path: Path, index: Index) -> None:
    """Writes the FAISS index. The setting and the ids are not part of the file.

    Raises ValueError for an index of codes only: a search needs the vectors too. Raises OSError if the file
    cannot be written.
    """
    if index.full_vectors is not None:
        raise ValueError("an index that stores only codes cannot be saved: its search needs the vectors")
    try:
        faiss.write_index(index.engine, str(path))
    except RuntimeError as error:
        raise _with_path(error, path) from error


def load(path: Path, setting: Setting, mapped: bool = False) -> Index:
    """A saved index with ids 0 to N - 1, for searches under `setting`.

    mapped: the file is mapped into memory, and a search reads the parts that it needs. FAISS does not check
    such a file completely: compare its size first. It may be replaced while it is used, but not changed in
    place, which would end the process.
    Parameters of the search (probes, refine, search_width) may differ from those of the build. Raises
    RuntimeError for a damaged file, OSError for one that cannot be read, and ValueError for an index of
    another kind.
    """
    try:
        engine = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if mapped else 0)
    except RuntimeError as error:
        raise _with_path(error, path) from error
    prepare(engine, setting)
    rows = np.arange(engine.ntotal)
    return Index(engine, setting, rows, rows, None)


def _with_path(error: RuntimeError, path: Path) -> RuntimeError | OSError:
    """An error of FAISS with the path; an OSError if its text ends with that of an error of the system."""
    text = str(error)
    number = next((each for each in errno.errorcode if text.endswith(f": {os.strerror(each)}")), None)
    if number is None:
        return RuntimeError(f"{path}: {text}")
    return OSError(number, os.strerror(number), str(path))


def vectors_at(index: Index, rows: Int64[np.ndarray, "P"]) -> Float32[np.ndarray, "P D"]:
    """Copies of the vectors of the rows with these numbers, which follow ascending ids."""
    if index.full_vectors is not None:
        return index.full_vectors.take(rows, axis=0)
    vectors: np.ndarray = index.engine.reconstruct_batch(rows)
    return vectors


def search_blocks(
    index: Index, queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"] | None, k: int
) -> Iterator[Neighbours]:
    """As `exact.search_blocks`, among the candidates that the index proposes.

    Without query ids no row is removed. Position -1 and similarity -inf fill the end of a row for which the
    index proposes fewer than k.
    """
    fetch = min(k + 1 + SPARE, len(index.ids))
    block = max(1, CELLS // fetch)
    for start in range(0, len(queries), block):
        chosen = np.arange(start, min(start + block, len(queries)), dtype=np.int64)
        candidates = propose(index.engine, index.setting, np.ascontiguousarray(queries[chosen]), fetch)
        scores = _similarities(index, queries, np.repeat(chosen, candidates.shape[1]), candidates.reshape(-1))
        scores = scores.reshape(candidates.shape)
        scores[candidates < 0] = -np.inf
        if query_ids is not None:
            scores[index.ids[candidates] == query_ids[chosen, None]] = -np.inf
        ranking = np.lexsort((candidates, -scores), axis=-1)[:, :k]
        positions = np.full((len(chosen), k), -1, np.int64)
        similarities = np.full((len(chosen), k), -np.inf, np.float32)
        similarities[:, : ranking.shape[1]] = np.take_along_axis(scores, ranking, axis=1)
        positions[:, : ranking.shape[1]] = np.take_along_axis(candidates, ranking, axis=1)
        yield Neighbours(
            chosen, np.where(np.isneginf(similarities), -1, index.positions[positions]), similarities
        )


def search(
    index: Index, queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"] | None, k: int
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """As `exact.exact_search`, among the candidates that the index proposes: ids and similarities."""
    gallery_ids = np.empty_like(index.ids)
    gallery_ids[index.positions] = index.ids
    return collected(search_blocks(index, queries, query_ids, k), gallery_ids, len(queries), k)


def _similarities(
    index: Index,
    queries: Float32[np.ndarray, "Q D"],
    queried: Int64[np.ndarray, "P"],
    rows: Int64[np.ndarray, "P"],
) -> Float32[np.ndarray, "P"]:
    """The defined similarity of queries[queried] with the rows; arbitrary for row -1."""
    values = np.empty(len(rows), np.float32)
    step = max(1, order.CACHED // queries.shape[1])
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        values[part] = order.pairs(
            queries.take(queried[part], axis=0), vectors_at(index, np.maximum(rows[part], 0))
        )
    return values


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs the block with this number of threads of FAISS."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
