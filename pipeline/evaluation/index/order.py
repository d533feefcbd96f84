"""The order of a gallery for a query. It is defined here, so that it does not depend on FAISS or BLAS.

    s(q, g) = float32( sum_d q_d g_d ), products and sum in float64
    g before g'  if  s(q, g) > s(q, g'),  or s(q, g) = s(q, g') and id(g) < id(g')
    a gallery row whose id is the id of the query is not a candidate

`keys` turns the order into a comparison of integers: the similarity is the upper half of 64 bits, the place
of the id the lower half.

A sum in any order differs from the exact sum by at most gamma_D |q| |g|, gamma_n = n u / (1 - n u), with u =
2^-24 in float32 and 2^-53 in float64 (Higham, Accuracy and Stability of Numerical Algorithms, sec. 3.1). A
caller that multiplies in float32 compares with this margin, and decides the pairs inside the margin by
`pairs`.
"""

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from unseen.runtime.errors import UserError

CACHED = 1 << 17  # float64 values that are gathered at a time, so that they stay in the cache
LAST = 0xFFFFFFFF  # place of the last possible id


def gamma(terms: int, roundoff: float) -> float:
    """Relative error of a sum of `terms` rounded products, in any order."""
    return terms * roundoff / (1 - terms * roundoff)


def pairs(queries: Float[np.ndarray, "P D"], gallery: Float[np.ndarray, "P D"]) -> Float32[np.ndarray, "P"]:
    """s of each row of `queries` with the same row of `gallery`: the definition.

    Each pair is one dot product, so that its value does not depend on the position in the array. Values in
    float32, or the same values already converted to float64.
    """
    values = np.empty(len(queries), np.float32)
    step = max(1, CACHED // max(1, queries.shape[1]))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        values[part] = np.vecdot(
            queries[part].astype(np.float64, copy=False), gallery[part].astype(np.float64, copy=False)
        )
    return values


def pairs_at(
    queries: Float[np.ndarray, "Q D"],
    rows: Int64[np.ndarray, "P"],
    gallery: Float[np.ndarray, "N D"],
    columns: Int64[np.ndarray, "P"],
) -> Float32[np.ndarray, "P"]:
    """s of queries[rows] with gallery[columns], a part of the P pairs in memory at a time."""
    values = np.empty(len(rows), np.float32)
    step = max(1, CACHED // max(1, queries.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        values[part] = pairs(queries.take(rows[part], axis=0), gallery.take(columns[part], axis=0))
    return values


def block(
    queries: Float32[np.ndarray, "Q D"], gallery: Float32[np.ndarray, "N D"]
) -> Float32[np.ndarray, "Q N"]:
    """s of every query with every gallery row, by one matrix product in float64.

    A product whose error could change its float32 value (one in 10^7) is computed again by `pairs_at`.
    """
    wide, high = queries.astype(np.float64), gallery.astype(np.float64)
    products = wide @ high.T
    largest = np.linalg.norm(high, axis=1).max(initial=0.0)
    margin = np.linalg.norm(wide, axis=1)[:, None] * (2 * gamma(queries.shape[1], 2.0**-53) * largest)
    values = (products - margin).astype(np.float32)
    rows, columns = np.nonzero(values != (products + margin).astype(np.float32))
    values[rows, columns] = pairs_at(queries, rows, gallery, columns)
    return values


def keys(
    similarities: Float32[np.ndarray, "*shape"], places: Int64[np.ndarray, "..."]
) -> Int64[np.ndarray, "*shape"]:
    """Integers that are larger for rows that rank earlier. `places` number the ids in ascending order from 0.

    At most 2^32 places are possible. The bits of a float32 have the order of integers after the bits of
    negative numbers are inverted; -0 becomes 0.
    """
    bits = (similarities + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    ordered = bits.astype(np.int64)
    ordered <<= 32
    ordered |= LAST - places
    return ordered


def places(ids: Int64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    """The place of each id in ascending order. Raises UserError if an id occurs twice."""
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    repeated = ascending[1:] == ascending[:-1]
    if repeated.any():
        raise UserError(
            f"Row id {ascending[1:][repeated][0]} occurs twice in the gallery.",
            "Row ids are unique within a data set. Export the embeddings again.",
        )
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    return place


def itself(query_ids: Int64[np.ndarray, "Q"], gallery_ids: Int64[np.ndarray, "N"]) -> Int64[np.ndarray, "Q"]:
    """The gallery position of the row with the id of each query; -1 if the gallery does not contain it."""
    order = np.argsort(gallery_ids, kind="stable")
    nearest = np.minimum(np.searchsorted(gallery_ids, query_ids, sorter=order), len(gallery_ids) - 1)
    positions = order[nearest]
    return np.where(gallery_ids[positions] == query_ids, positions, -1)


def check_finite(vectors: Float32[np.ndarray, "N D"], ids: Int64[np.ndarray, "N"], side: str) -> None:
    """Raises UserError with the id of the first row that has a value that is not finite."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise UserError(
            f"The embedding of {side} row id {ids[~finite][0]} contains a value that is not finite "
            f"({np.count_nonzero(~finite):,} such rows).",
            "The training diverged. Lower the learning rate, or train in float32.",
        )


class Centred:
    """A gallery minus its mean c: s(q, g) = q.(g - c) + q.c.

    The float32 error of the first product is proportional to the radius of the gallery about its mean.
    """

    def __init__(self, gallery: Float32[np.ndarray, "N D"]) -> None:
        centre = gallery.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.rows = gallery - centre
        self.centre = centre.astype(np.float64)
        squares = np.vecdot(self.rows, self.rows).astype(np.float64)
        self.radius = float(np.sqrt(squares.max()) * (1 + 1e-4))  # 1e-4: the squares are summed in float32

    def offset(self, queries: Float64[np.ndarray, "Q D"]) -> Float64[np.ndarray, "Q"]:
        """q.c"""
        return queries @ self.centre

    def error(
        self, queries: Float64[np.ndarray, "Q D"], terms: int | None = None
    ) -> Float64[np.ndarray, "Q"]:
        """A bound on the error of a float32 product of each query with a centred row.

        It covers `terms` products and sums (default: D) and the subtraction of the mean, each rounded to
        float32, and the float64 sums that the product is compared with, whose error matters if all gallery
        rows are equal. A sum of n partial products of d dimensions each has d + n - 1 terms, because
        sum_i |q_i| |g_i| <= |q| |g| for its parts.
        """
        double_terms = queries.shape[1] + 2
        terms = double_terms if terms is None else terms + 2
        single = gamma(terms, 2.0**-24) * self.radius
        double = 2 * double_terms * 2.0**-53 * (np.linalg.norm(self.centre) + self.radius)
        norms = np.linalg.norm(queries, axis=1)
        # A GPU may replace factors, products and sums below the normal range of float32 by 0.
        subnormal = double_terms * 2.0**-125 * (1 + norms + self.radius)
        return (single + double) * norms + subnormal
