"""The rank of every relevant row of every query, by counting instead of sorting.

The k-th relevant row p_k of a query, in the order of index/order.py, has

    rank(p_k) = k + #{ irrelevant g : g before p_k }

So each tile of products is compared with R thresholds and then discarded. There are no neighbour lists, the
cost is independent of K, and the whole ranking costs little more than one matrix product.

Queries and gallery are sorted by (size of the class, class). So the queries of a block have similar R, and
their relevant rows are a narrow band of the gallery, which is masked in the tiles. Products are in float32
with an error of at most e (order.Centred.error). Products farther than e from a threshold are decided by this
value; the others are "close" and are computed again by definition. counted_gallery.py counts a tile,
on the CPU or on a GPU. If many of its products are close (one-point or few-bit embeddings), it is computed in
float64 on the CPU and sorted in the defined order.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import faiss
import numpy as np
from jaxtyping import Float32, Float64, Int64
from threadpoolctl import threadpool_limits

from unseen.evaluation.counted_gallery import CountedGallery, NumpyGallery, TileCounter
from unseen.evaluation.index import order
from unseen.evaluation.tile_count import ranges
from unseen.runtime.errors import UserError

THRESHOLDS = 1 << 18  # relevant rows of a block, about 80 bytes each
DEEP = 16  # relevant rows of a query; more are many
PART, SHORT_PART = 256, 128  # dimensions of a partial product; the latter for more than DEEP relevant rows
CLOSE = 16  # a tile with more than one close product in CLOSE is computed in float64
MOST_THREADS = 8  # one tile each
BUFFER = 512  # elements, of numpy; a tile has longer rows
CHECKED = 64  # relevant rows of a tile whose float32 products are compared with the definition


class Ranks(NamedTuple):
    """1-based ranks of the relevant rows of b queries, ascending; 0 if a query has fewer than R."""

    queries: Int64[np.ndarray, "b"]  # positions in the query array
    ranks: Int64[np.ndarray, "b R"]


class Sorted(NamedTuple):
    """A gallery sorted by (class size, class), and the class of each query in it."""

    centred: order.Centred  # of `rows`
    rows: Float32[np.ndarray, "N D"]
    places: Int64[np.ndarray, "N"]  # of the ids
    first: Int64[np.ndarray, "Q"]  # position of the first row of the class of each query
    last: Int64[np.ndarray, "Q"]  # position after its last row
    itself: Int64[np.ndarray, "Q"]  # position of the query, or -1


def rank_blocks(
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    query_labels: Int64[np.ndarray, "Q"],
    gallery: Float32[np.ndarray, "N D"],
    gallery_ids: Int64[np.ndarray, "N"],
    gallery_labels: Int64[np.ndarray, "N"],
    depth: Int64[np.ndarray, "Q"] | None = None,
    counter: TileCounter = NumpyGallery,
) -> Iterator[Ranks]:
    """Blocks of queries by ascending R, without the queries with R = 0.

    `depth`: the last rank of each query that matters; later ones are larger than it, but not exact. Without
    it all ranks are exact. `counter` counts the tiles; the ranks do not depend on it.

    Memory in addition to the arguments: two copies of the gallery and one tile per thread. The number of
    threads is that of FAISS (OMP_NUM_THREADS, which Ray sets for its workers), at most 8; the ranks do not
    depend on it.

    Raises UserError for a value that is not finite, an id that occurs twice in the gallery or has two labels,
    and products of a lower precision than float32.
    """
    order.check_finite(queries, query_ids, "query")
    order.check_finite(gallery, gallery_ids, "gallery")
    table = _sorted(query_ids, query_labels, gallery, gallery_ids, gallery_labels)
    relevant = table.last - table.first - (table.itself >= 0)
    turn = np.lexsort((table.first, relevant))
    counted = counter(table.centred.rows)

    def ranks(chosen: np.ndarray) -> Ranks:
        last = None if depth is None else depth[chosen]
        return Ranks(chosen, _Block(queries[chosen], relevant[chosen], chosen, table, counted, last).ranks())

    blocks = _blocks(turn[relevant[turn] > 0], relevant, counted)
    threads = min(faiss.omp_get_max_threads(), MOST_THREADS)
    # One BLAS thread per tile: in so small a product several threads mostly wait for each other.
    # numpy copies an operand that is broadcast along rows shorter than its buffer: comparisons take 3 times
    # as long.
    with (
        threadpool_limits(1, user_api="blas"),
        ThreadPoolExecutor(threads, initializer=np.setbufsize, initargs=(BUFFER,)) as pool,
    ):
        ahead: deque[Future[Ranks]] = deque()
        for chosen in blocks:
            ahead.append(pool.submit(ranks, chosen))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _sorted(
    query_ids: np.ndarray,
    query_labels: np.ndarray,
    gallery: np.ndarray,
    gallery_ids: np.ndarray,
    gallery_labels: np.ndarray,
) -> Sorted:
    places, itself = order.places(gallery_ids), order.itself(query_ids, gallery_ids)
    on_both_sides = itself >= 0
    differs = on_both_sides & (gallery_labels[itself] != query_labels)
    if differs.any():
        raise UserError(
            f"Row id {query_ids[differs][0]} has different labels as a query and in the gallery.",
            "Export the embeddings again.",
        )
    classes, of_class, sizes = np.unique(gallery_labels, return_inverse=True, return_counts=True)
    turn = np.lexsort((of_class, sizes[of_class]))
    position = np.empty(len(turn), np.int64)
    position[turn] = np.arange(len(turn))
    first = np.full(len(classes), len(turn))
    np.minimum.at(first, of_class[turn], np.arange(len(turn)))
    of_query = np.minimum(np.searchsorted(classes, query_labels), len(classes) - 1)
    size = np.where(classes[of_query] == query_labels, sizes[of_query], 0)
    rows = gallery[turn]
    begin = first[of_query]
    itself = np.where(on_both_sides, position[itself], -1)
    return Sorted(order.Centred(rows), rows, places[turn], begin, begin + size, itself)


def _blocks(
    turn: Int64[np.ndarray, "q"], relevant: Int64[np.ndarray, "Q"], counted: CountedGallery
) -> Iterator[Int64[np.ndarray, "b"]]:
    """Runs of `turn` of at most THRESHOLDS relevant rows, and queries of a tile."""
    start = 0
    while start < len(turn):
        ahead = turn[start : start + counted.queries]
        rows = np.arange(1, len(ahead) + 1) * relevant[ahead]  # ascends, because `relevant` does
        fits = np.count_nonzero(rows <= THRESHOLDS)
        yield ahead[: max(1, fits)]
        start += max(1, int(fits))


class _Block:
    """Some queries, their thresholds, and the number of irrelevant rows counted before each threshold."""

    def __init__(
        self,
        queries: Float32[np.ndarray, "b D"],
        relevant: Int64[np.ndarray, "b"],
        chosen: Int64[np.ndarray, "b"],
        table: Sorted,
        gallery: CountedGallery,
        depth: Int64[np.ndarray, "b"] | None = None,
    ) -> None:
        self.queries, self.relevant, self.table, self.depth = queries, relevant, table, depth
        self.first, self.last = table.first[chosen], table.last[chosen]
        self.levels = int(relevant.max())  # R
        level = np.arange(self.levels)
        self.valid = level < relevant[:, None]  # b R; the other thresholds are padding
        columns = self.first[:, None] + level
        itself = table.itself[chosen][:, None]
        columns += (itself >= 0) & (columns >= itself)  # skips the query itself
        rows, levels = np.nonzero(self.valid)
        similarity = np.full(columns.shape, -np.inf, np.float32)
        similarity[rows, levels] = order.pairs_at(queries, rows, table.rows, columns[rows, levels])
        places = table.places[np.where(self.valid, columns, 0)]
        keys = np.where(self.valid, order.keys(similarity, places), np.iinfo(np.int64).min)
        best = np.argsort(~keys, axis=1)
        similarity, keys = (
            np.take_along_axis(similarity, best, axis=1),
            np.take_along_axis(keys, best, axis=1),
        )
        self.keys = np.where(self.valid, keys, np.iinfo(np.int64).max)
        # An exact product above the next float32 rounds to a value above the threshold, one below the
        # previous float32 to a value below it. Between the two, the pair is computed by definition.
        self.wide: Float64[np.ndarray, "b D"] = queries.astype(np.float64)
        dims = queries.shape[1]
        part = PART if self.levels <= DEEP else SHORT_PART
        terms = min(part, dims) + max(0, -(-dims // part) - 1)
        self.offset, self.error = table.centred.offset(self.wide), table.centred.error(self.wide, terms)
        up, down = (np.nextafter(similarity, np.float32(end)).astype(np.float64) for end in (np.inf, -np.inf))
        high = _up(up - self.offset[:, None] + self.error[:, None])
        low = -_up(-(down - self.offset[:, None] - self.error[:, None]))
        self.high = np.where(self.valid, high, np.float32(np.inf))
        self.low = np.where(self.valid, low, np.float32(np.inf))
        self.counts = np.zeros(self.valid.shape, np.int64)
        self.gallery, self.tiles = gallery, gallery.block(queries, part)
        self.tiles.compare_with(self.low, self.high, relevant)

    def ranks(self) -> Int64[np.ndarray, "b R"]:
        """Counts over the whole gallery, tile by tile."""
        total, rows = len(self.table.rows), len(self.queries)
        width = min(self.gallery.widest, max(1, self.gallery.cells // rows))
        start, exact = 0, False
        while start < total:
            columns = slice(start, min(start + width, total))
            members = self._members(columns)
            if exact:
                self._exact(columns, members)
            elif not self._count(columns, members):
                # Many products are close. This tile and all following ones are computed in float64.
                width, exact = min(width, max(1, NumpyGallery.cells // rows)), True
                continue
            start = columns.stop
            if self.depth is not None and not self._within(self.depth):
                break
        return np.where(self.valid, self.counts + np.arange(1, self.valid.shape[1] + 1), 0)

    def _within(self, depth: Int64[np.ndarray, "b"]) -> bool:
        """Drops the thresholds whose rank exceeds the depth. Counts never fall, and descending thresholds
        have ascending ranks. False if none remains."""
        beyond = self.counts + np.arange(1, self.valid.shape[1] + 1) > depth[:, None]
        self.low[beyond] = self.high[beyond] = np.inf
        self.relevant = (self.valid & ~beyond).sum(axis=1)
        self.levels = int(self.relevant.max())
        if self.levels:
            low, high = self.low[:, : self.levels], self.high[:, : self.levels]
            self.tiles.compare_with(low, high, self.relevant)
        return self.levels > 0

    def _members(self, columns: slice) -> Int64[np.ndarray, "P"]:
        """Flat positions in the tile of the rows of each query's class, including the query."""
        width = columns.stop - columns.start
        begin, end = (
            self.first.clip(columns.start, columns.stop),
            self.last.clip(columns.start, columns.stop),
        )
        return ranges(np.arange(len(begin)) * width + begin - columns.start, end - begin)

    def _count(self, columns: slice, members: Int64[np.ndarray, "P"]) -> bool:
        """Adds the counts of a tile of float32 products. False if too many of them are close."""
        most = len(self.queries) * (columns.stop - columns.start) // CLOSE
        products, (counts, rows, places, first, lengths) = self.tiles.count(columns, members, CHECKED, most)
        self._check(products, members[:CHECKED], columns)
        if counts is None:
            return False
        self.counts[:, : self.levels] += counts
        if len(rows):
            rows, places = np.repeat(rows, lengths), np.repeat(places, lengths) + columns.start
            levels = ranges(first, lengths)
            keys = order.keys(self._defined(rows, places), self.table.places[places])
            before = keys > self.keys[rows, levels]
            np.add.at(self.counts, (rows[before], levels[before]), 1)
        return True

    def _check(
        self, products: Float32[np.ndarray, "P"], members: Int64[np.ndarray, "P"], columns: slice
    ) -> None:
        """Raises UserError if these products of a tile differ too much from the definition."""
        rows, places = np.divmod(members, columns.stop - columns.start)
        defined = order.pairs_at(self.queries, rows, self.table.rows, places + columns.start)
        error = np.abs(products + self.offset[rows] - defined)
        allowed = self.error[rows] + 2.0**-24 * (np.abs(self.offset[rows]) + 1)
        if (error > allowed).any():
            raise UserError(
                f"{self.gallery.library} returned an inner product that is off by {error.max():.1e}, "
                "more than float32 arithmetic allows.",
                self.gallery.remedy,
            )

    def _defined(
        self, rows: Int64[np.ndarray, "P"], columns: Int64[np.ndarray, "P"]
    ) -> Float32[np.ndarray, "P"]:
        """s of the close products of a tile. If they are many, its rows are converted to float64 once."""
        first, last = int(columns.min()), int(columns.max()) + 1
        if len(rows) < last - first:
            return order.pairs_at(self.wide, rows, self.table.rows, columns)
        return order.pairs_at(
            self.wide, rows, self.table.rows[first:last].astype(np.float64), columns - first
        )

    def _exact(self, columns: slice, members: Int64[np.ndarray, "P"]) -> None:
        """Adds the counts of a tile computed by definition."""
        similarity = order.block(self.queries, self.table.rows[columns])
        similarity.reshape(-1)[members] = -np.inf
        keys = order.keys(similarity, self.table.places[columns])
        keys.sort(axis=1)
        for count, row, thresholds in zip(self.counts, keys, self.keys, strict=True):
            count += len(row) - row.searchsorted(thresholds)


def _up(values: Float64[np.ndarray, "b R"]) -> Float32[np.ndarray, "b R"]:
    """The smallest float32 that is not less."""
    narrow = values.astype(np.float32)
    return np.where(narrow < values, np.nextafter(narrow, np.float32(np.inf)), narrow)
