"""The recall of an index against exact search.

    recall at k = mean over sampled queries of |{retrieved rows : s >= s_k}| / |{k exact nearest rows}|

s_k is the similarity of the k-th exact neighbour. So every row that is as near as the k-th exact neighbour
counts, whichever of several equally near rows the index retrieved.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from unseen.evaluation.index.exact import search_blocks
from unseen.evaluation.index.index import Index, search


class Recall(NamedTuple):
    """Recall at 1 and at k, a mean over `queries` queries."""

    at_1: float
    at_k: float
    k: int
    queries: int


def recall(
    index: Index,
    gallery: Float32[np.ndarray, "N D"],
    gallery_ids: Int64[np.ndarray, "N"],
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    k: int,
    sample: int,
    seed: int,
) -> Recall:
    """Recall of the index of the gallery over `sample` queries, or over all if there are fewer.

    A query without any exact neighbour has recall 1.
    """
    chosen = sampled(len(queries), sample, seed)
    return recall_of_parts(
        index, [(gallery, gallery_ids)], np.ascontiguousarray(queries[chosen]), query_ids[chosen], k
    )


def sampled(queries: int, sample: int, seed: int) -> Int64[np.ndarray, "Q"]:
    """The positions of `sample` queries, ascending, drawn without replacement; of all if there are fewer."""
    return np.sort(np.random.default_rng(seed).permutation(queries)[:sample])


def recall_of_parts(
    index: Index,
    parts: Iterable[tuple[Float32[np.ndarray, "n D"], Int64[np.ndarray, "n"]]],
    queries: Float32[np.ndarray, "Q D"],
    query_ids: Int64[np.ndarray, "Q"],
    k: int,
) -> Recall:
    """Recall over all queries. parts: vectors and ids of the gallery, searched one after the other: the k
    largest similarities of all parts are those of the gallery."""
    _, similarities = search(index, queries, query_ids, k)
    exact = np.full((len(queries), k), -np.inf, np.float32)
    for gallery, gallery_ids in parts:
        for block in search_blocks(queries, query_ids, gallery, gallery_ids, k):
            both = np.concatenate([exact[block.queries], block.similarities], axis=1)
            exact[block.queries] = -np.sort(-both, axis=1)[:, :k]
    neighbours = np.isfinite(exact).sum(axis=1)
    last = exact[np.arange(len(queries)), np.maximum(neighbours, 1) - 1]
    retrieved = (np.isfinite(similarities) & (similarities >= last[:, None])).sum(axis=1)
    shares = np.where(neighbours > 0, retrieved / np.maximum(neighbours, 1), 1.0)
    at_1 = similarities[:, 0] >= exact[:, 0]
    return Recall(float(at_1.mean()), float(shares.mean()), k, len(queries))
