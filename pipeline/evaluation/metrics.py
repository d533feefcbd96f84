"""Recall@K, R-precision, MAP@R and MAP, of every query and on average, from the ranks of the relevant rows.

For a query with R relevant rows (same class, another id) at ranks r_1 < ... < r_R of the whole ranking:

    Recall@K    = 1 if r_1 <= K else 0                                     (K = 1: precision at 1)
    R-precision = #{ k : r_k <= R } / R
    MAP@R       = (1 / R) sum_{k : r_k <= R} k / r_k                       (Musgrave et al., A Metric Learning Reality Check, sec. 3.2)
    MAP         = (1 / R) sum_{k <= R} k / r_k                             (average precision over the whole ranking, not interpolated)

A lone query (R = 0) has none of them: it stays out of every average and is counted. Averages are over queries, or over classes of the averages of
their queries, in float64. docs/metrics.md says what other libraries compute under these names.

Two engines find the ranks, and the numbers are the same to the last bit: counting (rank_count.py, every rank, on the CPU) and FAISS's neighbour lists
(search.py, the first max(K, R) neighbours, on the GPU where there is one).
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import faiss
import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from pipeline.evaluation.rank_count import Ranks, rank_blocks
from pipeline.index.exact import Neighbours, search_blocks
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress

Engine = Literal["counting", "search"]
Search = Callable[[np.ndarray, np.ndarray, int], Iterator[Neighbours]]  # embeddings and ids of queries, k


class Rows(NamedTuple):
    """Embedded images."""

    row_id: Int64[np.ndarray, "N"]
    label: Int64[np.ndarray, "N"]
    embedding: Float32[np.ndarray, "N D"]


class PerQuery(NamedTuple):
    """One row per query; what a lone query does not have is NaN."""

    row_id: Int64[np.ndarray, "Q"]
    label: Int64[np.ndarray, "Q"]
    relevant: Int64[np.ndarray, "Q"]  # R
    recall: Float64[np.ndarray, "Q F"]  # 0, 1 or NaN; one column for each K of recall_at
    r_precision: Float64[np.ndarray, "Q"]
    ap_at_r: Float64[np.ndarray, "Q"]
    ap: Float64[np.ndarray, "Q"] | None  # of the whole ranking, where that was asked for
    first: Int64[
        np.ndarray, "Q"
    ]  # rank of the first relevant row from 1; 0 where it was not asked for: beyond max(K, R) of a ranking not wholly seen
    recall_at: tuple[int, ...]
    neighbours: Int64[np.ndarray, "Q T"]  # row ids of the nearest `keep`, padded with -1
    similarities: Float32[np.ndarray, "Q T"]

    def columns(self) -> dict[str, Float64[np.ndarray, "Q"]]:
        """The per-query values under the names that their averages have."""
        recalls = {f"recall_at_{k}": self.recall[:, column] for column, k in enumerate(self.recall_at)}
        whole = {} if self.ap is None else {"map": self.ap}
        return {**recalls, "r_precision": self.r_precision, "map_at_r": self.ap_at_r, **whole}


def quick_metrics(embeddings: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"], recall_at: tuple[int, ...] = (1,)) -> dict[str, float]:
    """Averages over all rows, each searched among all others: keys recall_at_<K>, r_precision and map_at_r. Exact, in bounded memory.

    Raises UserError where no row has another of its class.
    """
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, embeddings)
    return averages(per_query(rows, rows, recall_at))


def averages(result: PerQuery) -> dict[str, float]:
    """Means over the queries that have a relevant row. Raises UserError where none has."""
    scored = _scored(result)
    return {name: float(values[scored].mean()) for name, values in result.columns().items()}


def class_means(result: PerQuery) -> tuple[Int64[np.ndarray, "C"], dict[str, Float64[np.ndarray, "C"]]]:
    """The classes that have scored queries, and the mean of each metric over the queries of each: their mean weighs classes, not images, alike.

    Raises UserError where no query has a relevant row.
    """
    scored = _scored(result)
    classes, member, sizes = np.unique(result.label[scored], return_inverse=True, return_counts=True)
    return classes, {name: np.bincount(member, values[scored]) / sizes for name, values in result.columns().items()}


def per_query(
    queries: Rows,
    gallery: Rows,
    recall_at: tuple[int, ...],
    keep: int = 0,
    label: str | None = None,
    full_ranking: bool = False,
    engine: Engine | None = None,
    search: Search | None = None,
) -> PerQuery:
    """Every metric of every query; `keep` nearest are returned. `label` shows progress under that name.

    A query that is in the gallery too (by row id) is neither candidate nor relevant for itself. `full_ranking` asks for MAP and for the rank of every
    first hit, which no neighbour list can tell: counted. Without it FAISS searches where it has a GPU; `engine` overrules.
    `search` takes the place of exact search: a relevant row that an approximate index does not find counts as ranked behind all others.
    Raises UserError for an empty gallery, values that are not finite, ids that occur twice.
    """
    if not len(gallery.row_id):
        raise UserError("The gallery holds no image.", "Mark gallery images in the data set (column is_gallery), or leave that column out.")
    engine = "search" if search else engine
    if engine == "search" and full_ranking:
        raise ValueError("a neighbour list does not hold the whole ranking: full_ranking takes engine 'counting'")
    engine = engine or ("counting" if full_ranking or not faiss.get_num_gpus() else "search")
    search = search or (lambda embeddings, ids, k: search_blocks(embeddings, ids, gallery.embedding, gallery.row_id, k))
    recall_at = tuple(sorted(set(recall_at)))
    total = len(queries.row_id)
    relevant = _relevant(queries, gallery)
    recall, first = np.full((total, len(recall_at)), np.nan), np.zeros(total, np.int64)
    r_precision, ap_at_r, ap = (np.full(total, np.nan) for _ in range(3))
    if engine == "counting":
        blocks = rank_blocks(queries.embedding, queries.row_id, queries.label, gallery.embedding, gallery.row_id, gallery.label)
    else:
        blocks = _searched(queries, gallery, relevant, recall_at, search)
    with Progress(label, int((relevant > 0).sum()), "queries") if label else contextlib.nullcontext() as progress:
        for rows, ranks in blocks:
            if not full_ranking:
                ranks[ranks > np.maximum(relevant[rows], recall_at[-1])[:, None]] = 0  # what no engine needs to know
            recall[rows], r_precision[rows], ap_at_r[rows], ap[rows], first[rows] = score(ranks, relevant[rows], recall_at)
            if progress is not None:
                progress.advance(len(rows))
    neighbours, similarities = _nearest(queries, gallery, keep, label, search)
    return PerQuery(
        queries.row_id,
        queries.label,
        relevant,
        recall,
        r_precision,
        ap_at_r,
        ap if full_ranking else None,
        first,
        recall_at,
        neighbours,
        similarities,
    )


Scores = tuple[Float64[np.ndarray, "Q F"], Float64[np.ndarray, "Q"], Float64[np.ndarray, "Q"], Float64[np.ndarray, "Q"], Int64[np.ndarray, "Q"]]


def score(ranks: Int64[np.ndarray, "Q R"], relevant: Int64[np.ndarray, "Q"], recall_at: tuple[int, ...]) -> Scores:
    """Recall at each K, R-precision, AP@R, AP and the first rank, of ascending ranks of relevant rows; 0 where there is none or it is not known.

    AP is right only where all R ranks are there, AP@R where those up to R are.
    """
    place = np.arange(1, ranks.shape[1] + 1)[:, None]
    by_place = np.ascontiguousarray(ranks.T)  # summed one by one in ascending rank: the same bits however wide the block
    precision = np.where(by_place > 0, place / np.maximum(by_place, 1), 0.0)
    inside = (by_place > 0) & (by_place <= relevant)
    divisor = np.where(relevant > 0, relevant, np.nan)
    first = by_place[0] if len(by_place) else np.zeros(len(ranks), np.int64)
    recall = np.stack([np.where(relevant > 0, (first > 0) & (first <= k), np.nan) for k in recall_at], axis=1)
    ap_at_r = np.add.reduce(np.where(inside, precision, 0.0), axis=0) / divisor
    return recall, inside.sum(axis=0) / divisor, ap_at_r, np.add.reduce(precision, axis=0) / divisor, first


def ranks_of(hits: Bool[np.ndarray, "Q K"]) -> Int64[np.ndarray, "Q R"]:
    """The ranks, from 1, at which rankings hit; padded with 0."""
    counts = hits.sum(axis=1)
    rows, columns = np.nonzero(hits)
    ranks = np.zeros((len(hits), int(counts.max(initial=0))), np.int64)
    ranks[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = columns + 1
    return ranks


def _searched(queries: Rows, gallery: Rows, relevant: np.ndarray, recall_at: tuple[int, ...], search: Search) -> Iterator[Ranks]:
    """The ranks among the first max(K, R) neighbours.

    Queries are grouped by how many they need, in steps of four: one huge class does not make every other query as dear.
    """
    least = recall_at[-1]
    depth = np.maximum(relevant, least)
    step = np.where(relevant > 0, np.ceil(np.log2(depth / max(least, 16)) / 2).clip(min=0), -1)
    for group in np.unique(step[step >= 0]):
        chosen = np.flatnonzero(step == group)
        part = Rows(*(column[chosen] for column in queries))
        for block in search(part.embedding, part.row_id, int(depth[chosen].max())):
            rows = chosen[block.queries]
            yield Ranks(rows, ranks_of((gallery.label[block.positions] == queries.label[rows, None]) & (block.positions >= 0)))


def _nearest(queries: Rows, gallery: Rows, keep: int, label: str | None, search: Search) -> tuple[np.ndarray, np.ndarray]:
    """Row ids and similarities of the `keep` nearest."""
    ids = np.full((len(queries.row_id), keep), -1, np.int64)
    similarities = np.full((len(queries.row_id), keep), -np.inf, np.float32)
    if keep:
        with Progress(f"{label}, neighbours", len(ids), "queries") if label else contextlib.nullcontext() as progress:
            for block in search(queries.embedding, queries.row_id, keep):
                ids[block.queries] = np.where(block.positions < 0, -1, gallery.row_id[block.positions])
                similarities[block.queries] = block.similarities
                if progress is not None:
                    progress.advance(len(block.queries))
    return ids, similarities


def _scored(result: PerQuery) -> Bool[np.ndarray, "Q"]:
    scored = result.relevant > 0
    if not scored.any():
        raise UserError(
            f"None of the {len(scored):,} queries has another image of its class to find.",
            "Retrieval needs classes of at least two images; look at the counts in the manifest of the shards.",
        )
    return scored


def _relevant(queries: Rows, gallery: Rows) -> Int64[np.ndarray, "Q"]:
    """R of each query: gallery rows of its class, itself left out."""
    classes, counts = np.unique(gallery.label, return_counts=True)
    place = np.minimum(np.searchsorted(classes, queries.label), len(classes) - 1)
    counted = np.where(classes[place] == queries.label, counts[place], 0)
    return (counted - np.isin(queries.row_id, gallery.row_id)).astype(np.int64)
