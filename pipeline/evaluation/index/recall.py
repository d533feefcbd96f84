"""The recall of an index against exact search.

    recall at k = mean over sampled queries of |{retrieved rows : s >= s_k}| / |{k exact nearest rows}|

s_k is the similarity of the k-th exact neighbour. So every row that is as near as the k-th exact neighbour
counts, whichever of several equally near rows the index retrieved.
"""

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

    Queries are drawn without replacement. A query without any exact neighbour has recall 1.
    """
    chosen = np.sort(np.random.default_rng(seed).permutation(len(queries))[:sample])
    queries, query_ids = np.ascontiguousarray(queries[chosen]), query_ids[chosen]
    _, similarities = search(index, queries, query_ids, k)
    recalls = np.empty((len(chosen), 2))
    for block in search_blocks(queries, query_ids, gallery, gallery_ids, k):
        neighbours = (block.positions >= 0).sum(axis=1)
        last = block.similarities[np.arange(len(neighbours)), neighbours - 1]
        last = np.where(neighbours > 0, last, np.inf)
        retrieved = (similarities[block.queries] >= last[:, None]).sum(axis=1)
        recalls[block.queries, 0] = similarities[block.queries, 0] >= block.similarities[:, 0]
        recalls[block.queries, 1] = np.where(neighbours > 0, retrieved / np.maximum(neighbours, 1), 1.0)
    return Recall(float(recalls[:, 0].mean()), float(recalls[:, 1].mean()), k, len(chosen))
