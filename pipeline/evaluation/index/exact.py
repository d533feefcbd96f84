"""Exact K nearest neighbours by inner product, with the same result on every machine.

The ranking is that of order.py: similarities in float64 rounded to float32, ties by ascending id, without the
row that is the query.

FAISS proposes candidates in float32. There, two equal vectors may get products that differ in the last bit,
and the order of ties is undefined. So K rows and a few more are fetched, their similarities are computed as
defined, and the cut is verified: a row that FAISS omitted has a product of at most FAISS's last value, and
the float32 error is at most e (order.Centred.error). If the K-th similarity is larger than both together, the
result is exact. Otherwise the query is searched again with four times as many candidates, and finally against
every row. This resolves runs of equal similarities of any length.

The gallery is centred for FAISS. This subtracts a constant per query and so changes no ranking, and e becomes
small for a nearly collapsed gallery.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Float32, Int64

from unseen.evaluation.index import order
from unseen.runtime.errors import UserError

SPARE = 4  # candidates beyond K and the query itself, enough to verify almost every cut at once
WIDER = 4  # factor of the number of candidates after a cut that could not be verified
BLOCK = 4096  # queries in one FAISS call; fewer make worse use of the cache
CELLS = 1 << 20  # (query, candidate) pairs in memory at a time, about 40 bytes each
GPU_FETCH = 2048  # the most neighbours that FAISS returns on a GPU
TILE = 4096  # rows of the exhaustive search that are multiplied at a time
GATHERED = 1 << 17  # float32 values of candidates that are gathered at a time, so that they stay in the cache

Nearest = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class Neighbours(NamedTuple):
    """The nearest gallery rows of b queries, best first.

    If the gallery has fewer than K candidates, position -1 and similarity -inf fill the end.
    """

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
    """Ids and similarities of the k nearest gallery rows of each query, best first.

    Id -1 and similarity -inf fill the end if the gallery is short. Raises UserError for a value that is not
    finite and for an id that occurs twice in the gallery.
    """
    blocks = search_blocks(queries, query_ids, gallery, gallery_ids, k)
    return collected(blocks, gallery_ids, len(queries), k)


def collected(
    blocks: Iterable[Neighbours], gallery_ids: Int64[np.ndarray, "N"], queries: int, k: int
) -> tuple[Int64[np.ndarray, "Q K"], Float32[np.ndarray, "Q K"]]:
    """Ids and similarities of all blocks; -1 and -inf where a block has none."""
    ids = np.full((queries, k), -1, np.int64)
    similarities = np.full((queries, k), -np.inf, np.float32)
    for block in blocks:
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
    """`exact_search` in blocks of queries, in query order. Memory is that of one block for any k."""
    order.check_finite(queries, query_ids, "query")
    order.check_finite(gallery, gallery_ids, "gallery")
    if k < 1 or not len(gallery):
        raise ValueError(f"k must be positive and the gallery not empty, got k = {k} and {len(gallery)} rows")
    place = order.places(gallery_ids)
    ascending = np.argsort(place)  # from here on a smaller position is a smaller id
    rows = gallery if (place[1:] > place[:-1]).all() else gallery[ascending]
    itself = order.itself(query_ids, gallery_ids)
    itself = np.where(itself >= 0, place[itself], -1)
    find = _Finder(np.ascontiguousarray(rows), k)
    block = max(1, min(BLOCK, CELLS // (k + 1 + SPARE)))
    for start in range(0, len(queries), block):
        chosen = np.arange(start, min(start + block, len(queries)), dtype=np.int64)
        positions, similarities = find(np.ascontiguousarray(queries[chosen]), itself[chosen])
        yield Neighbours(chosen, np.where(positions < 0, -1, ascending[positions]), similarities)


class _Finder:
    """Search of a gallery that is sorted by id."""

    def __init__(self, gallery: Float32[np.ndarray, "N D"], k: int) -> None:
        self.gallery, self.k = gallery, k
        self.centred = order.Centred(gallery)
        self.nearest = _faiss(self.centred.rows)
        self.distinct: _Distinct | None = None  # computed for the first cut that cannot be verified

    def __call__(self, queries: np.ndarray, itself: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        positions = np.full((len(queries), self.k), -1, np.int64)
        similarities = np.full((len(queries), self.k), -np.inf, np.float32)
        self._fill(queries, itself, np.arange(len(queries)), self.k + 1 + SPARE, positions, similarities)
        return positions, similarities

    def _fill(
        self,
        queries: np.ndarray,
        itself: np.ndarray,
        rows: np.ndarray,
        fetch: int,
        positions: np.ndarray,
        similarities: np.ndarray,
    ) -> None:
        """Writes these rows of the results from `fetch` candidates each, or from more if needed."""
        vectors = len(self.gallery) if self.distinct is None else len(self.distinct.vectors)
        step = max(1, CELLS // min(fetch, len(self.gallery)))
        for part in (rows[start : start + step] for start in range(0, len(rows), step)):
            if fetch < vectors:
                candidates, scores, verified = self._candidates(queries[part], fetch, itself[part])
            else:
                candidates, scores = self._everything(queries[part], itself[part])
                verified = np.ones(len(part), bool)
            width = min(self.k, candidates.shape[1])
            done = part[verified]
            padded = np.isneginf(scores[verified, :width])
            positions[done, :width] = np.where(padded, -1, candidates[verified, :width])
            similarities[done, :width] = scores[verified, :width]
            if not verified.all():
                self.distinct = self.distinct or _distinct(self.gallery)
                self._fill(queries, itself, part[~verified], fetch * WIDER, positions, similarities)

    def _candidates(
        self, queries: np.ndarray, fetch: int, itself: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """FAISS's candidates in the defined order, their similarities, and which cuts at k are verified.

        The query itself is last, with similarity -inf.
        """
        approximate, candidates = self.nearest(queries, fetch)
        wide = queries.astype(np.float64)
        exact = np.empty(candidates.shape)
        step = max(1, GATHERED // (fetch * queries.shape[1]))
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            gathered = self.gallery.take(candidates[part], axis=0)
            exact[part] = np.vecdot(gathered.astype(np.float64), wide[part, None])
        offset, slack = self.centred.offset(wide), self.centred.error(wide)
        error = np.abs(approximate + offset[:, None] - exact).max(axis=1)
        if (error > slack).any():
            raise UserError(
                f"FAISS {faiss.__version__} returned an inner product that is off by {error.max():.1e}, "
                "more than float32 arithmetic allows.",
                "This GPU build computes in a lower precision. Install the CPU build: pip install '.[cpu]'.",
            )
        scores = exact.astype(np.float32)
        scores[candidates == itself[:, None]] = -np.inf
        ranking = np.lexsort((candidates, -scores), axis=-1)
        scores = np.take_along_axis(scores, ranking, axis=1)
        omitted = (approximate.min(axis=1) + offset + slack).astype(np.float32)  # bound of all other rows
        return np.take_along_axis(candidates, ranking, axis=1), scores, scores[:, self.k - 1] > omitted

    def _everything(self, queries: np.ndarray, itself: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The first k of all rows in the defined order. Equal rows are multiplied once."""
        self.distinct = self.distinct or _distinct(self.gallery)
        vectors, members, starts = self.distinct
        products = np.empty((len(queries), len(vectors)), np.float32)
        for start in range(0, len(vectors), TILE):
            products[:, start : start + TILE] = order.block(queries, vectors[start : start + TILE])
        positions = np.zeros((len(queries), self.k), np.int64)
        scores = np.full((len(queries), self.k), -np.inf, np.float32)
        # k + 1 distinct vectors and k + 1 rows of each are enough, because one row may be the query itself.
        enough = min(self.k + 1, len(vectors))
        for row, product in enumerate(products):
            cut = np.partition(product, len(product) - enough)[len(product) - enough]
            above = np.flatnonzero(product >= cut)
            rows_of = [members[starts[v] : min(starts[v] + self.k + 1, starts[v + 1])] for v in above]
            candidates = np.concatenate(rows_of)
            values = np.repeat(product[above], np.minimum(starts[above + 1] - starts[above], self.k + 1))
            others = candidates != itself[row]
            values, candidates = values[others], candidates[others]
            ranking = np.lexsort((candidates, -values))[: self.k]
            positions[row, : len(ranking)] = candidates[ranking]
            scores[row, : len(ranking)] = values[ranking]
        return positions, scores


class _Distinct(NamedTuple):
    """The distinct rows of a gallery.

    Rows equal to vector v are members[starts[v] : starts[v + 1]], ascending.
    """

    vectors: Float32[np.ndarray, "V D"]
    members: Int64[np.ndarray, "N"]
    starts: Int64[np.ndarray, "V+1"]


def _distinct(gallery: Float32[np.ndarray, "N D"]) -> _Distinct:
    rows = gallery.view(np.dtype((np.void, gallery.dtype.itemsize * gallery.shape[1])))[:, 0]
    _, first, inverse, counts = np.unique(rows, return_index=True, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return _Distinct(gallery[first], np.argsort(inverse, kind="stable"), starts)


def _faiss(gallery: Float32[np.ndarray, "N D"]) -> Nearest:
    """Inner products in float32 (no TF32, no float16) on all GPUs that FAISS has, otherwise on the CPU."""

    def on_cpu(queries: np.ndarray, fetch: int) -> tuple[np.ndarray, np.ndarray]:
        return faiss.knn(queries, gallery, fetch, metric=faiss.METRIC_INNER_PRODUCT)

    if faiss.get_num_gpus() == 0:
        return on_cpu
    options = faiss.GpuMultipleClonerOptions()
    options.shard = True  # each of several GPUs contains a part of the rows
    options.use_cuvs = options.useFloat16 = False
    index = faiss.index_cpu_to_all_gpus(faiss.IndexFlatIP(gallery.shape[1]), options)
    index.add(gallery)
    return lambda queries, fetch: (
        index.search(queries, fetch) if fetch <= GPU_FETCH else on_cpu(queries, fetch)
    )
