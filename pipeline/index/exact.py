"""Exact K nearest neighbours by inner product, the same on every machine.

The ranking is the one of `pipeline.index.order`: similarities in float64 rounded to float32, ties by ascending id, the query itself left out.

FAISS proposes candidates in float32, where two equal vectors may get unequal products in the last bit and the order of ties is its own. So k rows
and a few more are fetched, their similarities computed anew as above, and the cut is proven: what FAISS left out has a product of at most its last
value, and float32 summation is off by at most e (order.Centred). If the k-th similarity lies above that, nothing is missing; else the query is
searched again, four times as wide, and at last against every row. Runs of equal similarities of any length end there.

The gallery is centred for FAISS alone: a constant per query changes no ranking, and e shrinks with the spread of a nearly collapsed gallery.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from pipeline.index import order
from pipeline.runtime.errors import UserError

SPARE = 4  # fetched beyond k and the query itself: enough that almost every cut is proven at once
WIDER = 4  # factor of the next fetch where it was not
BLOCK = 4096  # queries that FAISS multiplies at a time; fewer cost it cache reuse
CELLS = 1 << 20  # (query, candidate) pairs held at a time: about 40 bytes each
GPU_FETCH = 2048  # most neighbours that FAISS returns on a GPU

Nearest = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Neighbours(NamedTuple):
    """The nearest gallery rows of some queries, best first. Where the gallery has fewer than K candidates: position -1, similarity -inf."""

    queries: Int64[np.ndarray, "b"]  # positions in the query array
    positions: Int64[np.ndarray, "b K"]  # positions in the gallery array
    similarities: Float32[np.ndarray, "b K"]


def exact_search(
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    gallery: Float32[np.ndarray, "N D"],
    gallery_ids: Int64[np.ndarray, "N"],
    k: int,
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """Ids and similarities of the k nearest gallery rows of each query, best first; id -1 and similarity -inf pad a short gallery.

    Raises UserError for a value that is not finite or an id that occurs twice in the gallery.
    """
    ids = np.full((len(queries), k), -1, np.int64)
    similarities = np.full((len(queries), k), -np.inf, np.float32)
    for block in search_blocks(queries, query_ids, gallery, gallery_ids, k):
        ids[block.queries] = np.where(block.positions < 0, -1, gallery_ids[block.positions])
        similarities[block.queries] = block.similarities
    return ids, similarities


def search_blocks(
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    gallery: Float32[np.ndarray, "N D"],
    gallery_ids: Int64[np.ndarray, "N"],
    k: int,
) -> Iterator[Neighbours]:
    """`exact_search` block by block, in query order: memory is that of one block, whatever k."""
    order.check_finite(queries, query_ids, "query")
    order.check_finite(gallery, gallery_ids, "gallery")
    if k < 1 or not len(gallery):
        raise ValueError(f"k must be positive and the gallery hold a row, got k = {k} and {len(gallery)} rows")
    place = order.places(gallery_ids)
    ascending = np.argsort(place)  # from here on a smaller position is a smaller id
    rows = gallery if (place[1:] > place[:-1]).all() else gallery[ascending]
    among = order.itself(query_ids, gallery_ids)
    itself = np.where(among >= 0, place[among], -1)
    find = _Finder(np.ascontiguousarray(rows), k)
    block = max(1, min(BLOCK, CELLS // (k + 1 + SPARE)))
    for start in range(0, len(queries), block):
        chosen = np.arange(start, min(start + block, len(queries)), dtype=np.int64)
        positions, similarities = find(np.ascontiguousarray(queries[chosen]), itself[chosen])
        yield Neighbours(chosen, np.where(positions < 0, -1, ascending[positions]), similarities)


class _Finder:
    """The gallery, sorted by id, ready to be searched."""

    def __init__(self, gallery: Float32[np.ndarray, "N D"], k: int) -> None:
        self.gallery, self.k = gallery, k
        self.centred = order.Centred(gallery)
        self.nearest = _faiss(self.centred.rows)
        self.distinct: _Distinct | None = None  # made when the first cut is not proven

    def __call__(self, queries: np.ndarray, itself: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = np.full((len(queries), self.k), -1, np.int64)
        similarities = np.full((len(queries), self.k), -np.inf, np.float32)
        self._fill(queries, itself, np.arange(len(queries)), self.k + 1 + SPARE, positions, similarities)
        return positions, similarities

    def _fill(self, queries: np.ndarray, itself: np.ndarray, todo: np.ndarray, fetch: int, positions: np.ndarray, similarities: np.ndarray) -> None:
        """Fills the rows `todo` of the two last arguments from `fetch` candidates, and from more where that proves too few."""
        vectors = len(self.gallery) if self.distinct is None else len(self.distinct.vectors)
        step = max(1, CELLS // min(fetch, len(self.gallery)))
        for part in (todo[start : start + step] for start in range(0, len(todo), step)):
            if fetch < vectors:
                found, scores, sure = self._candidates(queries[part], fetch, itself[part])
            else:
                found, scores = self._everything(queries[part], itself[part])
                sure = np.ones(len(part), bool)
            width = min(self.k, found.shape[1])
            kept = part[sure]
            positions[kept, :width] = np.where(np.isneginf(scores[sure, :width]), -1, found[sure, :width])
            similarities[kept, :width] = scores[sure, :width]
            if not sure.all():
                self.distinct = self.distinct or _distinct(self.gallery)
                self._fill(queries, itself, part[~sure], fetch * WIDER, positions, similarities)

    def _candidates(self, queries: np.ndarray, fetch: int, itself: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """FAISS's `fetch` candidates in the defined order (the query itself last, at -inf), and whether their first k are proven."""
        approximate, found = self.nearest(queries, fetch)
        wide = queries.astype(np.float64)
        exact = np.empty(found.shape)
        step = max(1, (1 << 17) // (fetch * queries.shape[1]))  # gathered rows stay in the cache
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            exact[part] = np.vecdot(self.gallery.take(found[part], axis=0).astype(np.float64), wide[part, None])
        offset, slack = self.centred.offset(wide), self.centred.error(wide)
        off = np.abs(approximate + offset[:, None] - exact).max(axis=1)
        if (off > slack).any():
            raise UserError(
                f"FAISS {faiss.__version__} returned an inner product that is off by {off.max():.1e}, more than float32 arithmetic allows.",
                "Install the CPU build of FAISS (pip install '.[cpu]'): this GPU build computes in a lower precision.",
            )
        scores = exact.astype(np.float32)
        scores[found == itself[:, None]] = -np.inf
        ranking = np.lexsort((found, -scores), axis=-1)
        scores = np.take_along_axis(scores, ranking, axis=1)
        left_out = (approximate.min(axis=1) + offset + slack).astype(np.float32)
        return np.take_along_axis(found, ranking, axis=1), scores, scores[:, self.k - 1] > left_out

    def _everything(self, queries: np.ndarray, itself: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The defined order's first k among all rows. Equal rows are multiplied once: a collapsed gallery costs less than any other."""
        self.distinct = self.distinct or _distinct(self.gallery)
        vectors, members, starts = self.distinct
        products = np.empty((len(queries), len(vectors)), np.float32)
        for start in range(0, len(vectors), 4096):
            products[:, start : start + 4096] = order.block(queries, vectors[start : start + 4096])
        found = np.zeros((len(queries), self.k), np.int64)
        scores = np.full((len(queries), self.k), -np.inf, np.float32)
        enough = min(self.k + 1, len(vectors))  # distinct vectors; k + 1 rows of each, for the query itself may be one
        for row, product in enumerate(products):
            above = np.flatnonzero(product >= np.partition(product, len(product) - enough)[len(product) - enough])
            candidates = np.concatenate([members[starts[v] : min(starts[v] + self.k + 1, starts[v + 1])] for v in above])
            values = np.repeat(product[above], np.minimum(starts[above + 1] - starts[above], self.k + 1))
            values, candidates = values[candidates != itself[row]], candidates[candidates != itself[row]]
            ranking = np.lexsort((candidates, -values))[: self.k]
            found[row, : len(ranking)], scores[row, : len(ranking)] = candidates[ranking], values[ranking]
        return found, scores


class _Distinct(NamedTuple):
    """The rows of a gallery without repetition; those equal to vector v stand at positions members[starts[v] : starts[v + 1]], ascending."""

    vectors: Float32[np.ndarray, "V D"]
    members: Int64[np.ndarray, "N"]
    starts: Int64[np.ndarray, "V+1"]


def _distinct(gallery: Float32[np.ndarray, "N D"]) -> _Distinct:
    keys = gallery.view(np.dtype((np.void, gallery.dtype.itemsize * gallery.shape[1])))[:, 0]
    _, first, inverse, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return _Distinct(gallery[first], np.argsort(inverse, kind="stable"), np.concatenate([[0], np.cumsum(counts)]))


def _faiss(gallery: Float32[np.ndarray, "N D"]) -> Nearest:
    """Inner products of float32 rows on all GPUs that FAISS has, else on the CPU; neither rounds its inputs (no TF32, no float16)."""

    def on_cpu(queries: np.ndarray, fetch: int) -> tuple[np.ndarray, np.ndarray]:
        return faiss.knn(queries, gallery, fetch, metric=faiss.METRIC_INNER_PRODUCT)

    if faiss.get_num_gpus() == 0:
        return on_cpu
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True  # of several GPUs each holds a part of the rows
    options.use_cuvs = options.useFloat16 = False
    index = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(gallery.shape[1]), options)
    index.add(gallery)
    return lambda queries, fetch: index.search(queries, fetch) if fetch <= GPU_FETCH else on_cpu(queries, fetch)
