"""The rank of every relevant row of every query, by counting instead of sorting: the whole ranking's metrics for little more than one matrix product.

The k-th relevant row p_k of a query, in the order of `pipeline.index.order`, stands at

    rank(p_k) = k + #{ irrelevant g : g before p_k }

so a tile of products needs to be compared with R thresholds and can be forgotten. No list of neighbours is kept, K costs nothing.

Queries and gallery are sorted by (size of the class, class): the queries of a block have nearly one R, and their relevant rows are a narrow band of
the gallery, which is taken out of the tiles. Products are float32 and off by at most e (order.Centred): what is not within e of a threshold counts
as it stands, what is gets multiplied anew by definition. Per tile one of three ways, all exact:

    few     most products are below the lowest threshold: the others are picked out, one pass over the tile
    sorted  otherwise the tile is sorted row by row, and every threshold's place found in it
    exact   many lie close (one-point or few-bit embeddings): the tile is computed in float64 and sorted by the defined order, ties and all
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from pipeline.index import order
from pipeline.runtime.errors import UserError

CELLS = 1 << 20  # products of a tile: 4 MiB, about 40 when sorted
THRESHOLDS = 1 << 18  # relevant rows of a block, about 80 bytes each
BLOCK = 256  # queries of a tile: their products with 4,096 gallery rows stay in the last cache
CLOSE = 16  # one close call in so many products: the tile is computed exactly
MOST_THREADS = 8  # a tile each
CHECKED = 256  # relevant rows of a tile whose products are held against the definition


class Ranks(NamedTuple):
    """Ranks from 1 of the relevant rows of some queries, ascending; 0 where a query has fewer than R."""

    queries: Int64[np.ndarray, "b"]  # positions in the query array
    ranks: Int64[np.ndarray, "b R"]


class Sorted(NamedTuple):
    """A gallery in the order of (class size, class)."""

    centred: order.Centred  # of the rows in this order
    rows: Float32[np.ndarray, "N D"]
    places: Int64[np.ndarray, "N"]  # of the ids
    first: Int64[np.ndarray, "Q"]  # of each query: where its class begins
    last: Int64[np.ndarray, "Q"]  # and ends
    itself: Int64[np.ndarray, "Q"]  # position of the query, or -1


def rank_blocks(
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    query_labels: Int64[np.ndarray, "Q"],
    gallery: Float32[np.ndarray, "N D"],
    gallery_ids: Int64[np.ndarray, "N"],
    gallery_labels: Int64[np.ndarray, "N"],
) -> Iterator[Ranks]:
    """Blocks of queries by ascending R; those with R = 0 do not occur. Memory beside the arguments: two copies of the gallery and a tile per thread.

    As many threads as FAISS would take (OMP_NUM_THREADS, which Ray sets for its workers), at most 8; their number changes no rank.

    Raises UserError for a value that is not finite, an id that occurs twice in the gallery or has two labels, and a BLAS of lower precision.
    """
    order.check_finite(queries, query_ids, "query")
    order.check_finite(gallery, gallery_ids, "gallery")
    if not len(gallery):
        raise ValueError("the gallery must hold a row")
    table = _sorted(query_ids, query_labels, gallery, gallery_ids, gallery_labels)
    relevant = table.last - table.first - (table.itself >= 0)
    turn = np.lexsort((table.first, relevant))

    def ranks(chosen: np.ndarray) -> Ranks:
        return Ranks(chosen, _Block(queries[chosen], relevant[chosen], chosen, table).ranks())

    blocks = _blocks(turn[relevant[turn] > 0], relevant)
    threads = min(faiss.omp_get_max_threads(), MOST_THREADS)
    # One thread per tile: within so small a product the threads of OpenBLAS wait for each other, at four times the CPU seconds.
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[Ranks]] = deque()
        for chosen in blocks:
            ahead.append(pool.submit(ranks, chosen))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _sorted(query_ids: np.ndarray, query_labels: np.ndarray, gallery: np.ndarray, gallery_ids: np.ndarray, gallery_labels: np.ndarray) -> Sorted:
    places, itself = order.places(gallery_ids), order.itself(query_ids, gallery_ids)
    both = itself >= 0
    differs = both & (gallery_labels[itself] != query_labels)
    if differs.any():
        raise UserError(f"Row id {query_ids[differs][0]} has one label as a query and another in the gallery.", "Export the embeddings anew.")
    classes, of_class, sizes = np.unique(gallery_labels, return_inverse=True, return_counts=True)
    turn = np.lexsort((of_class, sizes[of_class]))
    position = np.empty(len(turn), np.int64)
    position[turn] = np.arange(len(turn))
    first = np.full(len(classes), len(turn))
    np.minimum.at(first, of_class[turn], np.arange(len(turn)))
    known = np.minimum(np.searchsorted(classes, query_labels), len(classes) - 1)
    size = np.where(classes[known] == query_labels, sizes[known], 0)
    rows = gallery[turn]
    return Sorted(order.Centred(rows), rows, places[turn], first[known], first[known] + size, np.where(both, position[itself], -1))


def _blocks(turn: Int64[np.ndarray, "q"], relevant: Int64[np.ndarray, "Q"]) -> Iterator[Int64[np.ndarray, "b"]]:
    """Runs of `turn` of at most BLOCK queries and THRESHOLDS relevant rows."""
    start = 0
    while start < len(turn):
        ahead = turn[start : start + BLOCK]
        fits = np.count_nonzero(np.arange(1, len(ahead) + 1) * relevant[ahead] <= THRESHOLDS)  # relevant ascends, so do the products
        yield ahead[: max(1, fits)]
        start += max(1, int(fits))


class _Block:
    """Some queries, their thresholds, and how many irrelevant rows were counted before each."""

    def __init__(self, queries: Float32[np.ndarray, "b D"], relevant: Int64[np.ndarray, "b"], chosen: Int64[np.ndarray, "b"], table: Sorted) -> None:
        self.queries, self.relevant, self.table = queries, relevant, table
        self.first, self.last = table.first[chosen], table.last[chosen]
        self.levels = int(relevant.max())  # R
        level = np.arange(self.levels)
        self.held = level < relevant[:, None]  # b R
        columns = self.first[:, None] + level
        itself = table.itself[chosen][:, None]
        columns += (itself >= 0) & (columns >= itself)  # the query is not relevant for itself
        rows, levels = np.nonzero(self.held)
        similarity = np.full(columns.shape, -np.inf, np.float32)
        similarity[rows, levels] = order.pairs_at(queries, rows, table.rows, columns[rows, levels])
        keys = np.where(self.held, order.keys(similarity, table.places[np.where(self.held, columns, 0)]), np.iinfo(np.int64).min)
        best = np.argsort(~keys, axis=1)
        similarity, keys = np.take_along_axis(similarity, best, axis=1), np.take_along_axis(keys, best, axis=1)
        self.keys = np.where(self.held, keys, np.iinfo(np.int64).max)
        # A true product above the next float32 rounds to one above the threshold, and so below: between the two only the definition decides.
        wide = queries.astype(np.float64)
        self.offset, self.error = table.centred.offset(wide), table.centred.error(wide)
        up, down = (np.nextafter(similarity, np.float32(end)).astype(np.float64) for end in (np.inf, -np.inf))
        self.high = np.where(self.held, _up(up - self.offset[:, None] + self.error[:, None]), np.float32(np.inf))
        self.low = np.where(self.held, -_up(-(down - self.offset[:, None] - self.error[:, None])), np.float32(np.inf))
        self.lowest = self.low[np.arange(len(queries)), relevant - 1]
        self.counts = np.zeros(self.held.shape, np.int64)

    def ranks(self) -> Int64[np.ndarray, "b R"]:
        """The whole gallery, tile by tile."""
        total, width = len(self.table.rows), max(1, CELLS // len(self.queries))
        products = np.empty(len(self.queries) * min(width, total), np.float32)
        above = np.empty(len(products), bool)
        exact = False  # what was close once is close again
        for start in range(0, total, width):
            columns = slice(start, min(start + width, total))
            shape = len(self.queries), columns.stop - start
            size = shape[0] * shape[1]
            own = self._own(columns)
            if not exact:
                tile = products[:size].reshape(shape)
                np.matmul(self.queries, self.table.centred.rows[columns].T, out=tile)
                self._check(tile, own[:CHECKED], start)
                tile.reshape(-1)[own] = -np.inf
                mask = np.greater_equal(tile, self.lowest[:, None], out=above[:size].reshape(shape))
                exact = not self._count(tile, mask, start)
            if exact:
                self._exact(columns, own)
        return np.where(self.held, self.counts + np.arange(1, self.levels + 1), 0)

    def _own(self, columns: slice) -> Int64[np.ndarray, "P"]:
        """Flat positions in the tile of the rows of each query's class, the query among them."""
        width = columns.stop - columns.start
        begin, end = self.first.clip(columns.start, columns.stop), self.last.clip(columns.start, columns.stop)
        return _ranges(np.arange(len(begin)) * width + begin - columns.start, end - begin)

    def _check(self, tile: Float32[np.ndarray, "b w"], own: Int64[np.ndarray, "P"], start: int) -> None:
        rows, columns = np.divmod(own, tile.shape[1])
        off = np.abs(tile[rows, columns] + self.offset[rows] - order.pairs_at(self.queries, rows, self.table.rows, columns + start))
        allowed = self.error[rows] + 2.0**-24 * (np.abs(self.offset[rows]) + 1)
        if (off > allowed).any():
            raise UserError(
                f"numpy returned an inner product that is off by {off.max():.1e}, more than float32 arithmetic allows.",
                "Its BLAS computes in a lower precision: install numpy from PyPI, or switch that mode off.",
            )

    def _count(self, tile: Float32[np.ndarray, "b w"], mask: Bool[np.ndarray, "b w"], start: int) -> bool:
        """Adds a tile of approximate products. False, and nothing added, where too many of them are close to a threshold."""
        count = _few if np.count_nonzero(mask) * (self.levels + 4) < 2 * tile.size else _in_rows
        surely, rows, columns, closely = count(tile, mask, self.low, self.high, self.relevant, tile.size // CLOSE)
        if surely is None:
            return False
        self.counts += surely
        if len(rows):
            columns = columns + start
            keys = order.keys(order.pairs_at(self.queries, rows, self.table.rows, columns), self.table.places[columns])
            before = keys > self.keys[rows, closely]
            np.add.at(self.counts, (rows[before], closely[before]), 1)
        return True

    def _exact(self, columns: slice, own: Int64[np.ndarray, "P"]) -> None:
        similarity = order.block(self.queries, self.table.rows[columns])
        similarity.reshape(-1)[own] = -np.inf
        keys = order.keys(similarity, self.table.places[columns])
        keys.sort(axis=1)
        for count, row, thresholds in zip(self.counts, keys, self.keys, strict=True):
            count += len(row) - row.searchsorted(thresholds)


Counted = tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray]  # counts (b, R) or None; row, column and threshold of each close call
NONE = np.empty(0, np.int64)


def _few(tile: np.ndarray, mask: np.ndarray, low: np.ndarray, high: np.ndarray, relevant: np.ndarray, most: int) -> Counted:
    """Of the products in the mask, how many thresholds each exceeds; thresholds descend, so those are the last ones."""
    levels = low.shape[1]
    place = np.flatnonzero(mask)
    rows, value = place // tile.shape[1], tile.reshape(-1)[place]
    passed, near = np.zeros((2, len(place)), np.int64)
    for level in range(levels):
        passed += value > high[rows, level]
        near += value >= low[rows, level]
    close = np.flatnonzero(near > passed)
    width = near[close] - passed[close]
    if width.sum() > most:
        return None, NONE, NONE, NONE
    reached = relevant[rows] - passed  # the first threshold it stands above, counting from the best
    surely = np.bincount(rows * (levels + 1) + reached, minlength=len(tile) * (levels + 1)).reshape(len(tile), levels + 1)
    again = np.repeat(close, width)
    return np.cumsum(surely[:, :levels], axis=1), rows[again], place[again] % tile.shape[1], _ranges(relevant[rows[close]] - near[close], width)


def _in_rows(tile: np.ndarray, mask: np.ndarray, low: np.ndarray, high: np.ndarray, relevant: np.ndarray, most: int) -> Counted:
    """Each row of the tile sorted, as integers of product and column: the places of the thresholds in it, and who stands between."""
    keys = order.keys(tile, np.arange(tile.shape[1]))
    keys.sort(axis=1)
    bounds = np.concatenate([order.keys(low, np.array(order.LAST)), order.keys(high, np.array(0)) + 1], axis=1)
    found = np.stack([row.searchsorted(bound) for row, bound in zip(keys, bounds, strict=True)])
    near, passed = found[:, : low.shape[1]], found[:, low.shape[1] :]
    width = (passed - near).reshape(-1)
    if width.sum() > most:
        return None, NONE, NONE, NONE
    rows, levels = np.divmod(np.repeat(np.arange(width.size), width), low.shape[1])
    columns = order.LAST - (keys[rows, _ranges(near.reshape(-1), width)] & order.LAST)
    return tile.shape[1] - passed, rows, columns, levels


def _ranges(starts: Int64[np.ndarray, "P"], lengths: Int64[np.ndarray, "P"]) -> Int64[np.ndarray, "T"]:
    """start, start + 1, ... of each range, one after the other."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))


def _up(values: Float64[np.ndarray, "b R"]) -> Float32[np.ndarray, "b R"]:
    """The least float32 that is not below."""
    narrow = values.astype(np.float32)
    return np.where(narrow < values, np.nextafter(narrow, np.float32(np.inf)), narrow)
