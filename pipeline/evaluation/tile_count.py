"""Counts the products of a tile that exceed each threshold of their row.

A row of a tile has the products of a query with some rows of the gallery, and the thresholds of the query:
intervals [low, high] in descending order, padded with infinity. A product above `high` is counted, one below
`low` is not. A product inside an interval is "close": its row, its column and the thresholds are returned,
and the caller decides it. The functions differ in cost, and their results after this decision are equal:

    few         only the products of the mask are compared: most are below the lowest threshold
    by_level    all products are compared with one threshold of each row at a time
    in_rows     each row is sorted, and the thresholds are located in it
"""

import numpy as np
from jaxtyping import Bool, Int64

COLUMN_BITS = 11
WIDEST = 1 << COLUMN_BITS  # gallery rows of a tile
WORDS = 1024  # values whose words are added; at most 8 x 255
CODES = 1 << 31 - COLUMN_BITS
LARGEST = 1e30  # scale of products whose thresholds are almost equal

# Counts (b, R) of the decided products, or None; row and column of each close product, the first threshold
# that it is close to, and the number of such thresholds, which are consecutive.
Counted = tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
NONE = np.empty(0, np.int64)
UNDECIDED: Counted = (None, NONE, NONE, NONE, NONE)


def few(
    tile: np.ndarray, mask: np.ndarray, low: np.ndarray, high: np.ndarray, relevant: np.ndarray, most: int
) -> Counted:
    """Compares the products in the mask with the thresholds of their rows.

    Thresholds descend, so a product exceeds the last ones. The result is UNDECIDED for more than `most` close
    products.
    """
    levels = low.shape[1]
    place = np.flatnonzero(mask)
    rows = np.repeat(np.arange(len(tile)), _row_counts(mask))
    value = tile.reshape(-1).take(place)
    passed, near = np.zeros((2, len(place)), np.int64)
    for highest, lowest in zip(np.ascontiguousarray(high.T), np.ascontiguousarray(low.T), strict=True):
        passed += value > highest.take(rows)
        near += value >= lowest.take(rows)
    close = np.flatnonzero(near > passed)
    width = near[close] - passed[close]
    if width.sum() > most:
        return UNDECIDED
    reached = relevant[rows] - passed  # the first threshold that the product exceeds
    counts = np.bincount(rows * (levels + 1) + reached, minlength=len(tile) * (levels + 1))
    counts = counts.reshape(len(tile), levels + 1)
    first = relevant[rows[close]] - near[close]
    return np.cumsum(counts[:, :levels], axis=1), rows[close], place[close] % tile.shape[1], first, width


def by_level(
    tile: np.ndarray, mask: np.ndarray, low: np.ndarray, high: np.ndarray, relevant: np.ndarray, most: int
) -> Counted:
    """Compares all products with one threshold of each row at a time.

    The result is UNDECIDED for more than `most` close products.
    """
    counts = np.empty(low.shape, np.int64)
    close = np.zeros(tile.shape, bool)
    passed, near = np.empty((2, *tile.shape), bool)
    for level in range(low.shape[1]):
        np.greater(tile, high[:, level, None], out=passed)
        counts[:, level] = _row_counts(passed)
        np.greater_equal(tile, low[:, level, None], out=near)
        near ^= passed
        close |= near
    place = _places(close)
    rows, columns = np.divmod(place, tile.shape[1])
    value = tile.reshape(-1)[place, None]
    pairs, levels = np.nonzero((value >= low[rows]) & (value <= high[rows]))
    if len(pairs) > most:
        return UNDECIDED
    return counts, rows[pairs], columns[pairs], levels, np.ones(len(pairs), np.int64)


def _row_counts(mask: Bool[np.ndarray, "b w"]) -> Int64[np.ndarray, "b"]:
    """The number of true values of each row. A word of eight values is added up to 255 times."""
    if mask.shape[1] % WORDS:
        return np.array([np.count_nonzero(row) for row in mask])
    words = mask.view(np.uint64).reshape(len(mask), -1, WORDS // 8)
    return np.add.reduce(words, axis=2).view(np.uint8).sum(axis=1, dtype=np.int64)


def _places(mask: Bool[np.ndarray, "b w"]) -> Int64[np.ndarray, "P"]:
    """The flat positions of the true values. Most words of eight values contain none."""
    flat = mask.reshape(-1)
    whole = len(flat) // 8 * 8
    words = flat[:whole].view(np.uint64)
    filled = np.flatnonzero(words != 0)
    word, place = np.nonzero(words[filled].view(bool).reshape(-1, 8))
    return np.concatenate([filled[word] * 8 + place, whole + np.flatnonzero(flat[whole:])])


def in_rows(
    tile: np.ndarray, mask: np.ndarray, low: np.ndarray, high: np.ndarray, relevant: np.ndarray, most: int
) -> Counted:
    """Sorts each row of the tile as integers of product and column, and locates the thresholds in it.

    An integer has 31 bits: CODES steps between the lowest and the highest threshold of the row, and WIDEST
    columns. Each step of the conversion is monotonic. So a product whose integer is above that of a threshold
    is above the threshold, and products with equal integers are close. The tile is overwritten. The result is
    UNDECIDED for more than `most` close products.
    """
    valid = np.arange(low.shape[1]) < relevant[:, None]
    least = low[np.arange(len(low)), np.maximum(relevant, 1) - 1, None]
    least[relevant == 0] = 0  # such a row has no threshold
    scale = np.minimum((CODES - 4) / (high[:, :1].astype(np.float64) - least), LARGEST).astype(np.float32)

    def codes(products: np.ndarray) -> np.ndarray:
        """The upper bits, in place."""
        products -= least
        products *= scale
        products += 1
        return np.clip(products, 0, CODES - 1, out=products).astype(np.int32) << COLUMN_BITS

    keys = codes(tile)
    keys |= np.arange(tile.shape[1], dtype=np.int32)
    keys.sort(axis=1)
    bounds = np.concatenate([codes(low.copy()), codes(high.copy()) + WIDEST], axis=1)
    located = np.stack([row.searchsorted(bound) for row, bound in zip(keys, bounds, strict=True)])
    near, passed = located[:, : low.shape[1]], located[:, low.shape[1] :]
    width = np.where(valid, passed - near, 0).reshape(-1)
    if width.sum() > most:
        return UNDECIDED
    rows, levels = np.divmod(np.repeat(np.arange(width.size), width), low.shape[1])
    columns = keys[rows, ranges(near.reshape(-1), width)] & (WIDEST - 1)
    ones = np.ones(len(rows), np.int64)
    return tile.shape[1] - passed, rows, columns.astype(np.int64), levels, ones


def ranges(starts: Int64[np.ndarray, "P"], lengths: Int64[np.ndarray, "P"]) -> Int64[np.ndarray, "T"]:
    """The concatenated ranges start, start + 1, ..., start + length - 1."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(int(lengths.sum()))
