"""A gallery whose products with queries are counted tile by tile, and its implementation in numpy.

A product is a sum of partial products of `part` dimensions, added one after the other in float32. Within a
partial product the order of the sum is free: order.Centred.error bounds the error of every order. The caller
(rank_count.py) widens the thresholds by this bound and decides the close products. So the ranks do not depend
on the implementation.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import faiss
import numpy as np
from jaxtyping import Bool, Float32, Int64

from unseen.evaluation.tile_count import WIDEST, Counted, by_level, few, in_rows

SAMPLED = 16  # the share of products above the lowest threshold is that of every 16th row


@runtime_checkable
class CountedBlock(Protocol):
    """The float32 products of the b queries of a block with the gallery, tile by tile."""

    def compare_with(
        self,
        low: Float32[np.ndarray, "b R"],
        high: Float32[np.ndarray, "b R"],
        relevant: Int64[np.ndarray, "b"],
    ) -> None:
        """Sets the thresholds of the next tiles. The first `relevant` of a row are finite."""

    def count(
        self, columns: slice, members: Int64[np.ndarray, "P"], checked: int, most: int
    ) -> tuple[Float32[np.ndarray, "c"], Counted]:
        """The products of the first `checked` of `members`, and the counts of the tile without `members`.

        `columns` are the gallery rows of the tile, `members` flat positions in it. The counts are None for
        more than `most` pairs of a close product and a threshold.
        """


@runtime_checkable
class CountedGallery(Protocol):
    """A gallery whose tiles of products are counted. Their size changes no rank."""

    queries: int  # of a tile
    cells: int  # products of a tile
    widest: int  # gallery rows of a tile
    library: str  # that multiplies
    remedy: str  # of products of a lower precision than float32

    def block(self, queries: Float32[np.ndarray, "b D"], part: int) -> CountedBlock:
        """`part`: dimensions of a partial product. The products are sums of partial products."""


TileCounter = Callable[[Float32[np.ndarray, "N D"]], CountedGallery]


class NumpyGallery:
    """Products by numpy's BLAS. Memory: one tile for each block that is counted at a time."""

    queries = 512  # their products with 2,048 gallery rows stay in the last-level cache
    cells = 1 << 20  # 4 MiB, about 40 MiB if sorted
    widest = WIDEST
    library = "numpy"
    remedy = "Its BLAS computes in a lower precision. Install numpy from PyPI, or disable that mode."

    def __init__(self, rows: Float32[np.ndarray, "N D"]) -> None:
        self._rows = rows

    def block(self, queries: Float32[np.ndarray, "b D"], part: int) -> "NumpyBlock":
        return NumpyBlock(self._rows, queries, part)


class NumpyBlock:
    """The products of the queries of a block with a gallery, and memory for one tile of them."""

    def __init__(
        self, rows: Float32[np.ndarray, "N D"], queries: Float32[np.ndarray, "b D"], part: int
    ) -> None:
        self._rows, self._queries, self._part = rows, queries, part
        self._products, self._above = np.empty(0, np.float32), np.empty(0, bool)

    def compare_with(
        self,
        low: Float32[np.ndarray, "b R"],
        high: Float32[np.ndarray, "b R"],
        relevant: Int64[np.ndarray, "b"],
    ) -> None:
        self._low, self._high, self._relevant = low, high, relevant
        self._lowest = low[np.arange(len(low)), np.maximum(relevant, 1) - 1]

    def count(
        self, columns: slice, members: Int64[np.ndarray, "P"], checked: int, most: int
    ) -> tuple[Float32[np.ndarray, "c"], Counted]:
        shape = len(self._queries), columns.stop - columns.start
        size = shape[0] * shape[1]
        if size > len(self._products):
            self._products, self._above = np.empty(size, np.float32), np.empty(size, bool)
        products, tile = self._products[:size], self._products[:size].reshape(shape)
        self._multiply(tile, columns)
        sample = products[members[:checked]]
        products[members] = -np.inf
        return sample, self._count(tile, self._above[:size].reshape(shape), most)

    def _multiply(self, tile: Float32[np.ndarray, "b w"], columns: slice) -> None:
        """The products of a tile, as sums of partial products: the bound of their error, and with it the
        number of close products, is proportional to the dimensions of a part."""
        rows = self._rows[columns].T
        np.matmul(self._queries[:, : self._part], rows[: self._part], out=tile)
        for first in range(self._part, len(rows), self._part):
            part = slice(first, first + self._part)
            tile += self._queries[:, part] @ rows[part]

    def _count(self, tile: Float32[np.ndarray, "b w"], mask: Bool[np.ndarray, "b w"], most: int) -> Counted:
        """The counts of a tile in the way of the lowest cost. `mask`: memory for the products above the
        lowest threshold."""
        sample, levels = tile[::SAMPLED], self._low.shape[1]
        share = np.count_nonzero(sample >= self._lowest[::SAMPLED, None]) / sample.size
        costs = {  # nanoseconds per product, measured
            few: 0.5 + 5 * share * (levels + 4),
            by_level: 0.5 + 0.5 * levels,
            in_rows: 12.0 + 0.05 * levels,
        }
        count = min(costs, key=lambda way: costs[way])
        if count is few:
            np.greater_equal(tile, self._lowest[:, None], out=mask)
        return count(tile, mask, self._low, self._high, self._relevant, most)


def tile_counter() -> TileCounter:
    """Counts ranks on the GPU if FAISS and torch have one, else on the CPU. The ranks are equal.

    FAISS is asked first: the Makefile installs its GPU build where there is a GPU, and its CPU build reports
    none. So torch, whose import takes seconds, is not imported where there is no GPU.
    """
    if faiss.get_num_gpus() == 0:
        return NumpyGallery
    from unseen.runtime.device.counted_gallery import TorchGallery, has_gpu

    return TorchGallery if has_gpu() else NumpyGallery
