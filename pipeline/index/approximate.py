"""Approximate search as a declared setting: an index proposes candidates, and what that loses is measured and reported.

index_kinds.py has the kinds. Candidates get the similarity and the order that `search` defines, and a query is removed by id: only what is not
proposed is lost, and

    recall at k = mean over sampled queries of |{found : s >= s_k}| / |{exact k nearest}|

s_k the k-th exact similarity, so that rows equally near count as found whichever of them it was. A number from an approximate index is never one
of a benchmark: its protocol names the setting, and its recall stands beside it.

The same gallery and setting give the same index, byte for byte, as long as it is built on one thread: threads insert into a graph in any order.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from pipeline.index import order
from pipeline.index.exact import Neighbours, search_blocks
from pipeline.index.kinds import AT_SEARCH_TIME, Hnsw, Ivf, IvfPq, Setting, kind_of, propose, set_search, trained
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, write_json

__all__ = ["Hnsw", "Index", "Ivf", "IvfPq", "Recall", "approximate_blocks", "approximate_search", "build", "declared", "load", "recall", "save"]

SPARE = 4  # candidates beyond k and the query itself: FAISS's own order of near ties is not ours
CELLS = 1 << 20  # (query, candidate) pairs held at a time


class Index(NamedTuple):
    """A built index; the gallery's vectors are needed beside it to score candidates."""

    engine: Any  # faiss.IndexIVFFlat, IndexIVFPQ, IndexRefineFlat over one, or IndexHNSWFlat
    setting: Setting
    gallery: Float32[np.ndarray, "N D"]  # sorted by id
    ids: Int64[np.ndarray, "N"]  # ascending
    given: Int64[np.ndarray, "N"]  # where these rows stood in the gallery that was given


class Recall(NamedTuple):
    """Of the approximate neighbours against the exact ones."""

    at_1: float
    at_k: float
    k: int
    queries: int


def declared(setting: Setting) -> str:
    """What stands as `search` in the protocol of numbers from such an index, so that their hash is another than that of exact ones."""
    values = ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(setting).items())
    return f"approximate, {kind_of(setting)}: {values}; candidates scored and ordered as in exact search"


def build(gallery: Float32[np.ndarray, "N D"], gallery_ids: Int64[np.ndarray, "N"], setting: Setting) -> Index:
    """The index of the rows. Raises UserError as `index_kinds.trained` does, and for an id that occurs twice."""
    gallery, ids, given = _sorted(gallery, gallery_ids)
    with _threads(setting.build_threads):
        engine = trained(gallery, setting)
        engine.add(gallery)
    set_search(engine, setting)
    return Index(engine, setting, gallery, ids, given)


def approximate_blocks(index: Index, queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"], k: int) -> Iterator[Neighbours]:
    """As `search.search_blocks` of the gallery that was given, among what the index proposes. Fewer than k proposed: -1 and -inf at the end."""
    fetch = min(k + 1 + SPARE, len(index.ids))
    block = max(1, CELLS // fetch)
    for start in range(0, len(queries), block):
        chosen = np.arange(start, min(start + block, len(queries)), dtype=np.int64)
        found = propose(index.engine, index.setting, np.ascontiguousarray(queries[chosen]), fetch)
        rows = np.repeat(chosen, found.shape[1])
        scores = order.pairs_at(queries, rows, index.gallery, found.reshape(-1)).reshape(found.shape)
        scores[(found < 0) | (index.ids[found] == query_ids[chosen, None])] = -np.inf
        ranking = np.lexsort((found, -scores), axis=-1)[:, :k]
        positions = np.full((len(chosen), k), -1, np.int64)
        similarities = np.full((len(chosen), k), -np.inf, np.float32)
        similarities[:, : ranking.shape[1]] = np.take_along_axis(scores, ranking, axis=1)
        positions[:, : ranking.shape[1]] = np.take_along_axis(found, ranking, axis=1)
        yield Neighbours(chosen, np.where(np.isneginf(similarities), -1, index.given[positions]), similarities)


def approximate_search(
    index: Index, queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"], k: int
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """As `search.exact_search`, among what the index proposes."""
    gallery_ids = np.empty_like(index.ids)
    gallery_ids[index.given] = index.ids
    ids = np.full((len(queries), k), -1, np.int64)
    similarities = np.full((len(queries), k), -np.inf, np.float32)
    for block in approximate_blocks(index, queries, query_ids, k):
        ids[block.queries] = np.where(block.positions < 0, -1, gallery_ids[block.positions])
        similarities[block.queries] = block.similarities
    return ids, similarities


def recall(index: Index, queries: Float32[np.ndarray, "Q D"], query_ids: Int64[np.ndarray, "Q"], k: int, sample: int, seed: int) -> Recall:
    """Recall at 1 and at k over `sample` queries drawn without replacement (all, where there are no more), against exact search."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(queries))[:sample])
    queries, query_ids = np.ascontiguousarray(queries[chosen]), query_ids[chosen]
    _, ours = approximate_search(index, queries, query_ids, k)
    shares = np.empty((len(chosen), 2))
    for block in search_blocks(queries, query_ids, index.gallery, index.ids, k):
        held = (block.positions >= 0).sum(axis=1)
        last = np.where(held > 0, block.similarities[np.arange(len(held)), held - 1], np.inf)
        shares[block.queries, 0] = ours[block.queries, 0] >= block.similarities[:, 0]
        found = (ours[block.queries] >= last[:, None]).sum(axis=1)
        shares[block.queries, 1] = np.where(held > 0, found / np.maximum(held, 1), 1.0)  # where there is nothing to find, nothing is lost
    return Recall(float(shares[:, 0].mean()), float(shares[:, 1].mean()), k, len(chosen))


def save(directory: Path, index: Index) -> None:
    """Writes index.faiss and index.json, which says what it was built from. The vectors of the gallery are in it too, unless it holds codes alone."""
    with atomic_directory(directory) as aside:
        faiss.write_index(index.engine, str(aside / "index.faiss"))
        write_json(aside / "index.json", _declaration(index.setting, index.gallery, index.ids))


def load(directory: Path, gallery: Float32[np.ndarray, "N D"], gallery_ids: Int64[np.ndarray, "N"], setting: Setting) -> Index:
    """The saved index of exactly this gallery and setting; raises UserError where it is missing, damaged or of others.

    `probes`, `search_width` and the number of `refine` act at search time: an index built under other values of them is the same index.
    """
    remedy = "Build the index anew."
    gallery, ids, given = _sorted(gallery, gallery_ids)
    path = Path(directory, "index.faiss")
    try:
        declared = json.loads(Path(directory, "index.json").read_text(encoding="utf-8"))
        expected = _declaration(setting, gallery, ids)
        if declared != expected:
            differing = [key for key in expected if not isinstance(declared, dict) or declared.get(key) != expected[key]]
            raise UserError(f"{path} was built from something else: {', '.join(differing)} differ.", remedy)
        index = faiss.read_index(str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}.", remedy) from error
    if (index.ntotal, index.d) != gallery.shape:
        raise UserError(f"{path} holds {index.ntotal} rows of {index.d} dimensions, its index.json says {gallery.shape}.", remedy)
    set_search(index, setting)
    return Index(index, setting, gallery, ids, given)


def _declaration(setting: Setting, gallery: np.ndarray, ids: np.ndarray) -> dict[str, object]:
    digest = hashlib.sha256(ids.data)
    digest.update(gallery.data)
    built = {name: value for name, value in dataclasses.asdict(setting).items() if name not in AT_SEARCH_TIME}
    if isinstance(setting, IvfPq):
        built["full_vectors"] = setting.refine is not None
    return {"kind": kind_of(setting), "setting": built, "rows": len(ids), "dim": gallery.shape[1], "gallery": digest.hexdigest()}


def _sorted(gallery: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ascending = np.argsort(order.places(ids))
    return np.ascontiguousarray(gallery[ascending] if (ids[1:] < ids[:-1]).any() else gallery), ids[ascending], ascending


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
