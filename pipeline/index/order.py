"""The order in which a gallery is ranked, defined and not left to a library: what FAISS proposes and what BLAS multiplies is judged by it.

    s(q, g) = float32( sum_d q_d g_d ), products and sum in float64
    g before g'  if  s(q, g) > s(q, g'),  or s(q, g) = s(q, g') and id(g) < id(g')
    a gallery row whose id is the query's id is no candidate

Both are one comparison of integers: `keys` puts the similarity into the upper half of 64 bits and the place of the id into the lower one.

A sum in any order is off by at most gamma_D |q| |g|, gamma_n = n u / (1 - n u), u = 2^-24 in float32 and 2^-53 in float64 (Higham, Accuracy and
Stability of Numerical Algorithms, sec. 3.1). Whoever multiplies fast compares with that margin, and decides what lies within it by `pairs`.
"""

import numpy as np
from jaxtyping import Float32, Float64, Int64

from pipeline.runtime.errors import UserError

CACHED = 1 << 17  # float64 values gathered at a time: they stay in the cache
LAST = 0xFFFFFFFF  # place of the last possible id


def gamma(terms: int, roundoff: float) -> float:
    """Relative error of a sum of `terms` rounded products, in any order."""
    return terms * roundoff / (1 - terms * roundoff)


def pairs(queries: Float32[np.ndarray, "P D"], gallery: Float32[np.ndarray, "P D"]) -> Float32[np.ndarray, "P"]:
    """s of each row of `queries` with the same row of `gallery`: the definition. One dot product each, wherever the pair stands in the array."""
    values = np.empty(len(queries), np.float32)
    step = max(1, CACHED // max(1, queries.shape[1]))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        values[part] = np.vecdot(queries[part].astype(np.float64), gallery[part].astype(np.float64))
    return values


def pairs_at(
    queries: Float32[np.ndarray, "Q D"], rows: Int64[np.ndarray, "P"], gallery: Float32[np.ndarray, "N D"], columns: Int64[np.ndarray, "P"]
) -> Float32[np.ndarray, "P"]:
    """s of queries[rows] with gallery[columns], never holding all of either."""
    values = np.empty(len(rows), np.float32)
    step = max(1, CACHED // max(1, queries.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        values[part] = pairs(queries.take(rows[part], axis=0), gallery.take(columns[part], axis=0))
    return values


def block(queries: Float32[np.ndarray, "Q D"], gallery: Float32[np.ndarray, "N D"]) -> Float32[np.ndarray, "Q N"]:
    """s of every query with every gallery row, through one matrix product in float64.

    Where its error could round to another float32 (one value in 10^7), the pair is multiplied by itself.
    """
    wide, high = queries.astype(np.float64), gallery.astype(np.float64)
    products = wide @ high.T
    margin = np.linalg.norm(wide, axis=1)[:, None] * (2 * gamma(queries.shape[1], 2.0**-53) * np.linalg.norm(high, axis=1).max(initial=0.0))
    values = (products - margin).astype(np.float32)
    rows, columns = np.nonzero(values != (products + margin).astype(np.float32))
    values[rows, columns] = pairs_at(queries, rows, gallery, columns)
    return values


def keys(similarities: Float32[np.ndarray, "*shape"], places: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "*shape"]:
    """Integers that are greater the earlier a row stands in the ranking; `places` number the ids in ascending order from 0, at most 2^32 of them.

    The bits of a float32 order as integers once those of negative numbers are turned round; -0 is made 0.
    """
    bits = (similarities + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & np.int32(0x7FFFFFFF)
    ordered = bits.astype(np.int64)
    ordered <<= 32
    ordered |= LAST - places
    return ordered


def places(ids: Int64[np.ndarray, "N"]) -> Int64[np.ndarray, "N"]:
    """The place of each id among all, ascending. Raises UserError where one occurs twice."""
    order = np.argsort(ids, kind="stable")
    ascending = ids[order]
    twice = ascending[1:] == ascending[:-1]
    if twice.any():
        raise UserError(f"Row id {ascending[1:][twice][0]} occurs twice in the gallery.", "Row ids are unique within a data set; export anew.")
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    return place


def itself(query_ids: Int64[np.ndarray, "Q"], gallery_ids: Int64[np.ndarray, "N"]) -> Int64[np.ndarray, "Q"]:
    """The position in the gallery of the row that is the query; -1 where it is not among them."""
    order = np.argsort(gallery_ids, kind="stable")
    found = order[np.minimum(np.searchsorted(gallery_ids, query_ids, sorter=order), len(gallery_ids) - 1)]
    return np.where(gallery_ids[found] == query_ids, found, -1)


def check_finite(vectors: Float32[np.ndarray, "N D"], ids: Int64[np.ndarray, "N"], what: str) -> None:
    """Raises UserError naming the first row that holds a value that is not finite."""
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise UserError(
            f"The embedding of {what} row id {ids[~finite][0]} holds a value that is not finite ({np.count_nonzero(~finite):,} such rows).",
            "The network diverged: lower the learning rate, or train in float32.",
        )


class Centred:
    """A gallery shifted by its mean: s(q, g) = q.(g - c) + q.c, so that a product in float32 is off by less the closer the gallery lies together."""

    def __init__(self, gallery: Float32[np.ndarray, "N D"]) -> None:
        centre = gallery.mean(axis=0, dtype=np.float64).astype(np.float32)
        self.rows = gallery - centre
        self.centre = centre.astype(np.float64)
        self.radius = float(np.sqrt(np.vecdot(self.rows, self.rows).astype(np.float64).max()) * (1 + 1e-4))  # the norm is summed in float32

    def offset(self, queries: Float64[np.ndarray, "Q D"]) -> Float64[np.ndarray, "Q"]:
        """q.c"""
        return queries @ self.centre

    def error(self, queries: Float64[np.ndarray, "Q D"]) -> Float64[np.ndarray, "Q"]:
        """Most that a float32 product of a query and a centred row can be off: D products and sums and the centring, each rounded to float32;
        and the float64 sums it is compared with, whose error is felt where the gallery is one point."""
        terms = queries.shape[1] + 2
        narrow = gamma(terms, 2.0**-24) * self.radius
        ours = 2 * terms * 2.0**-53 * (np.linalg.norm(self.centre) + self.radius)
        return (narrow + ours) * np.linalg.norm(queries, axis=1) + terms * 2.0**-148  # the last: products below the normal range
