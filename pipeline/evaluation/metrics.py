"""Recall@K, R-precision, MAP@R and MAP of every query and on average, from the ranks of the relevant rows.

For a query with R relevant rows (same class, another id) at ranks r_1 < ... < r_R of the whole ranking:

    Recall@K    = 1 if r_1 <= K else 0                  (K = 1: precision at 1)
    R-precision = #{ k : r_k <= R } / R
    MAP@R       = (1 / R) sum_{k : r_k <= R} k / r_k    (Musgrave et al., A Metric Learning Reality Check)
    MAP         = (1 / R) sum_{k <= R} k / r_k          (average precision over the whole ranking, step-wise)

A lone query (R = 0) has no value. It is excluded from every average and counted. Averages are over queries,
or over classes of the averages over their queries, in float64. docs/metrics.md lists what other libraries
compute under these names.

The ranks are counted (rank_count.py, on the CPU or, in stage `evaluate`, on the GPU if there is one), or read
from the first max(K, R) neighbours of a search, such as that of an approximate index. Exact neighbours give
the same values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.index.exact import Neighbours, collected, search_blocks
from unseen.evaluation.rank_count import Ranks, rank_blocks
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress

Search = Callable[[np.ndarray, np.ndarray, int], Iterator[Neighbours]]  # embeddings and ids of queries, k


class Rows(NamedTuple):
    """Embedded images."""

    row_id: Int64[np.ndarray, "N"]
    label: Int64[np.ndarray, "N"]
    embedding: Float32[np.ndarray, "N D"]


class PerQuery(NamedTuple):
    """One row per query; NaN where a lone query has no value."""

    row_id: Int64[np.ndarray, "Q"]
    label: Int64[np.ndarray, "Q"]
    relevant: Int64[np.ndarray, "Q"]  # R
    recall: Float64[np.ndarray, "Q F"]  # 0, 1 or NaN; one column per K of recall_at
    r_precision: Float64[np.ndarray, "Q"]
    ap_at_r: Float64[np.ndarray, "Q"]
    ap: Float64[np.ndarray, "Q"] | None  # of the whole ranking; None without full_ranking
    # 1-based rank of the first relevant row; 0 if it lies beyond the part of the ranking that was computed
    first: Int64[np.ndarray, "Q"]
    recall_at: tuple[int, ...]
    neighbours: Int64[np.ndarray, "Q T"]  # row ids of the nearest rows, padded with -1
    similarities: Float32[np.ndarray, "Q T"]
    own: Mapping[str, Float64[np.ndarray, "Q"]] = {}  # metrics of a user, by name

    def columns(self) -> dict[str, Float64[np.ndarray, "Q"]]:
        """The per-query values by the name of their average."""
        recalls = {f"recall_at_{k}": self.recall[:, column] for column, k in enumerate(self.recall_at)}
        full = {} if self.ap is None else {"map": self.ap}
        return {**recalls, "r_precision": self.r_precision, "map_at_r": self.ap_at_r, **full, **self.own}


def quick_metrics(
    embeddings: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    label: str | None = None,
    counter: TileCounter = NumpyGallery,
) -> dict[str, float]:
    """Averages over all rows as queries in all other rows: keys recall_at_1, r_precision and map_at_r.

    `counter`: as `per_query` takes it. Raises UserError if no class has two rows.
    """
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, embeddings)
    return averages(per_query(rows, rows, (1,), label=label, counter=counter))


def averages(result: PerQuery) -> dict[str, float]:
    """Means over the queries that have a relevant row. Raises UserError if no query has one."""
    scored = _scored(result)
    return {name: float(values[scored].mean()) for name, values in result.columns().items()}


def class_means(result: PerQuery) -> tuple[Int64[np.ndarray, "C"], dict[str, Float64[np.ndarray, "C"]]]:
    """The classes with scored queries, and the mean of each metric over the queries of each class.

    Raises UserError if no query has a relevant row.
    """
    scored = _scored(result)
    classes, member, sizes = np.unique(result.label[scored], return_inverse=True, return_counts=True)
    return classes, {
        name: np.bincount(member, values[scored]) / sizes for name, values in result.columns().items()
    }


def per_query(
    queries: Rows,
    gallery: Rows,
    recall_at: tuple[int, ...],
    keep: int = 0,
    label: str | None = None,
    full_ranking: bool = False,
    search: Search | None = None,
    counter: TileCounter = NumpyGallery,
) -> PerQuery:
    """Every metric of every query, and its `keep` nearest rows. `label` is the name of the progress line.

    A query that is also in the gallery (same row id) is neither a candidate nor relevant for itself.
    `full_ranking` adds MAP and the rank of every first relevant row. `counter` counts the tiles; no value
    depends on it. `search`, without `full_ranking`, replaces counting; a relevant row that it does not
    retrieve counts as ranked after all other rows.

    Raises UserError for an empty gallery, values that are not finite, and ids that occur twice.
    """
    if not len(gallery.row_id):
        raise UserError(
            "The gallery is empty.",
            "Mark gallery images in the column is_gallery of the data set, or remove that column.",
        )
    if search and full_ranking:
        raise ValueError("full_ranking needs counted ranks: neighbour lists end before rank N")
    recall_at = tuple(sorted(set(recall_at)))
    total = len(queries.row_id)
    relevant = _relevant(queries, gallery)
    recall, first = np.full((total, len(recall_at)), np.nan), np.zeros(total, np.int64)
    r_precision, ap_at_r, ap = (np.full(total, np.nan) for _ in range(3))
    depth = np.maximum(relevant, recall_at[-1])  # the last rank that a metric needs without full_ranking
    if search is None:
        search = partial(exact_search, gallery)
        blocks = rank_blocks(
            queries.embedding,
            queries.row_id,
            query_labels=queries.label,
            gallery=gallery.embedding,
            gallery_ids=gallery.row_id,
            gallery_labels=gallery.label,
            depth=None if full_ranking else depth,
            counter=counter,
        )
    else:
        blocks = _searched(queries, gallery, relevant, recall_at, search)
    with Progress(label, int((relevant > 0).sum()), "queries") as progress:
        for rows, ranks in blocks:
            if not full_ranking:  # a search gives the ranks up to max(K, R)
                ranks[ranks > depth[rows][:, None]] = 0
            scores = score(ranks, relevant[rows], recall_at)
            recall[rows], r_precision[rows], ap_at_r[rows], ap[rows], first[rows] = scores
            progress.advance(len(rows))
    of_nearest = f"{label}, neighbours" if label and keep else None
    with Progress(of_nearest, total, "queries") as progress:
        nearest = search(queries.embedding, queries.row_id, keep) if keep else ()
        neighbours, similarities = collected(_counted(nearest, progress), gallery.row_id, total, keep)
    return PerQuery(
        queries.row_id,
        queries.label,
        relevant=relevant,
        recall=recall,
        r_precision=r_precision,
        ap_at_r=ap_at_r,
        ap=ap if full_ranking else None,
        first=first,
        recall_at=recall_at,
        neighbours=neighbours,
        similarities=similarities,
    )


Scores = tuple[
    Float64[np.ndarray, "Q F"],
    Float64[np.ndarray, "Q"],
    Float64[np.ndarray, "Q"],
    Float64[np.ndarray, "Q"],
    Int64[np.ndarray, "Q"],
]


def score(
    ranks: Int64[np.ndarray, "Q R"], relevant: Int64[np.ndarray, "Q"], recall_at: tuple[int, ...]
) -> Scores:
    """Recall at each K, R-precision, AP@R, AP and the first rank, from ascending ranks of relevant rows.

    Rank 0 pads a row and replaces ranks that were not computed. AP needs all R ranks, AP@R those up to R.
    """
    place = np.arange(1, ranks.shape[1] + 1)[:, None]
    by_place = np.ascontiguousarray(ranks.T)  # its sums run in ascending rank, for blocks of any width
    precision = np.where(by_place > 0, place / np.maximum(by_place, 1), 0.0)
    inside = (by_place > 0) & (by_place <= relevant)
    divisor = np.where(relevant > 0, relevant, np.nan)
    first = by_place[0] if len(by_place) else np.zeros(len(ranks), np.int64)
    recall = np.stack([np.where(relevant > 0, (first > 0) & (first <= k), np.nan) for k in recall_at], axis=1)
    ap_at_r = np.add.reduce(np.where(inside, precision, 0.0), axis=0) / divisor
    return recall, inside.sum(axis=0) / divisor, ap_at_r, np.add.reduce(precision, axis=0) / divisor, first


def ranks_of(hits: Bool[np.ndarray, "Q K"]) -> Int64[np.ndarray, "Q R"]:
    """The 1-based ranks of the relevant rows in rankings; padded with 0."""
    counts = hits.sum(axis=1)
    rows, columns = np.nonzero(hits)
    ranks = np.zeros((len(hits), int(counts.max(initial=0))), np.int64)
    ranks[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = columns + 1
    return ranks


def _searched(
    queries: Rows, gallery: Rows, relevant: np.ndarray, recall_at: tuple[int, ...], search: Search
) -> Iterator[Ranks]:
    """The ranks among the first max(K, R) neighbours.

    Queries are grouped by this number in steps of a factor four, so that one large class does not make the
    search for all queries deep.
    """
    least = recall_at[-1]
    depth = np.maximum(relevant, least)
    step = np.where(relevant > 0, np.ceil(np.log2(depth / max(least, 16)) / 2).clip(min=0), -1)
    for group in np.unique(step[step >= 0]):
        chosen = np.flatnonzero(step == group)
        part = Rows(*(column[chosen] for column in queries))
        for block in search(part.embedding, part.row_id, int(depth[chosen].max())):
            rows = chosen[block.queries]
            hits = (gallery.label[block.positions] == queries.label[rows, None]) & (block.positions >= 0)
            yield Ranks(rows, ranks_of(hits))


def exact_search(
    gallery: Rows, embeddings: Float32[np.ndarray, "Q D"], ids: Int64[np.ndarray, "Q"], k: int
) -> Iterator[Neighbours]:
    """The k nearest rows of the gallery."""
    return search_blocks(embeddings, ids, gallery.embedding, gallery.row_id, k)


def _counted(blocks: Iterable[Neighbours], progress: Progress) -> Iterator[Neighbours]:
    for block in blocks:
        yield block
        progress.advance(len(block.queries))


def _scored(result: PerQuery) -> Bool[np.ndarray, "Q"]:
    scored = result.relevant > 0
    if not scored.any():
        raise UserError(
            f"None of the {len(scored):,} queries has another image of its class in the gallery.",
            "Retrieval needs classes with two images or more. See the counts in the manifest of the shards.",
        )
    return scored


def _relevant(queries: Rows, gallery: Rows) -> Int64[np.ndarray, "Q"]:
    """R of each query: the gallery rows of its class without the query itself."""
    classes, counts = np.unique(gallery.label, return_counts=True)
    place = np.minimum(np.searchsorted(classes, queries.label), len(classes) - 1)
    sizes = np.where(classes[place] == queries.label, counts[place], 0)
    return (sizes - np.isin(queries.row_id, gallery.row_id)).astype(np.int64)
