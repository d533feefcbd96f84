"""The official number of the benchmark behind a task of mteb, as the authors of the benchmark compute it.

The ranking of a query is that of index/order.py: the greater similarity is first, of equal ones the smaller
id as text. With h_r = 1 if the row at rank r is relevant, else 0, R the relevant rows of the query in qrels,
in the corpus or not, and P(r) = 1/r sum of h_i over i <= r:

    recall       Recall@k = 1 if h_r = 1 for an r <= k, else 0, in the ranking without the image itself
    average      AP@k = 1 / min(k, R) sum of h_r P(r) over r <= k
    tied         the same with P(e_r), e_r <= k the last rank that has the similarity of rank r
    revisited    AP and P@k of revisited.py; a row without a line in qrels is removed
    recognition  accuracy = mean of h_1 over the M queries with R > 0
                 gap = 1/M sum of h_1 P over all queries in falling confidence max(0, s_1), where P is the
                 share of h_1 = 1 up to the query; gap_known is that of the M queries alone

A query with R = 0 counts as 0. In `revisited` it is excluded, in `recognition` it is a distractor. Equal
confidences are in ascending order of the id of the query. OFFICIAL names the source of each formula.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from unseen.evaluation.evaluate import with_ends
from unseen.evaluation.index.exact import search_blocks
from unseen.evaluation.revisited import precision, trapezoidal_ap
from unseen.evaluation.statistics.intervals import class_intervals
from unseen.runtime.errors import UserError


class Official(NamedTuple):
    """How a benchmark is measured, and what the data of its task cannot give."""

    measure: str
    depths: tuple[int, ...]
    source: str
    remark: str


_SONG = "rksltnl/Deep-Metric-Learning-CVPR16 02bcf73, evaluate_recall.m"
_CLASSES = "The task has all {} classes; published numbers are of {}."
OFFICIAL = {
    "CUB200I2IRetrieval": Official("recall", (1, 2, 4, 8), _SONG, _CLASSES.format(200, "101 to 200")),
    "StanfordCarsI2IRetrieval": Official("recall", (1, 2, 4, 8), _SONG, _CLASSES.format(196, "99 to 196")),
    "SOPI2IRetrieval": Official(
        "recall", (1, 10, 100, 1000), _SONG, _CLASSES.format("22,634", "the last 11,316")
    ),
    "RP2kI2IRetrieval": Official(
        "recall", (1,), _SONG, "RP2k has no released evaluator of retrieval: Recall@1 is as that of SOP."
    ),
    "METI2IRetrieval": Official(
        "recognition",
        (1,),
        "nikosips/met dea402c, utils.py and knn_classifier.py with K = 1",
        "Published numbers are of 1,003 photos of visitors and 18,316 distractors, which the task lacks, of "
        "whitened vectors, with K and temperature chosen on validation photos.",
    ),
    "GLDv2I2IRetrieval": Official(
        "average",
        (100,),
        "tensorflow/models e4009b2, google_landmarks_dataset/metrics.py",
        "qrels do not tell the public from the private queries, which are published apart.",
    ),
    "ILIAS": Official(
        "tied",
        (1000,),
        "ilias-vrg/ilias e81029e, evaluation/src/dataset.py",
        "Published numbers are with 100 million distractors, or with 5 million of them.",
    ),
} | dict.fromkeys(
    [f"R{place}{level}I2IRetrieval" for place in ("Oxford", "Paris") for level in ("Easy", "Medium", "Hard")],
    Official(
        "revisited",
        (1, 5, 10),
        "filipradenovic/revisitop be39832, python/evaluate.py",
        "The images of the task have 256 pixels; published numbers use 1,024.",
    ),
)
Qrels = Mapping[str, Mapping[str, int]]
Vectors = tuple[np.ndarray, np.ndarray]  # ids as text, and (N, D) unit vectors
CONFIDENCE = 0.95


class Ranked(NamedTuple):
    """The nearest rows of one query, best first."""

    query: str
    positives: set[str]  # relevant ids
    hits: Bool[np.ndarray, "K"]
    judged: Bool[np.ndarray, "K"]  # has a line in qrels
    similarities: Float32[np.ndarray, "K"]


def official(name: str, qrels: Qrels, queries: Vectors, corpus: Vectors) -> dict[str, Any]:
    """The official numbers, not rounded, with `source`, `remark`, `queries` (those averaged) and `others`
    (excluded, or distractors), and with intervals of the means; or `reason`, why the data do not define them.

    Intervals are over classes, the queries with the same first relevant image, and in `revisited` over
    queries. Raises UserError if no query has a relevant image.
    """
    measure, depths, source, remark = OFFICIAL[name]
    if measure == "recall" and not np.isin(queries[0], corpus[0]).all():
        return {"reason": "the image itself cannot be left out: ids of queries are not in the corpus"}
    if measure == "revisited" and all(min(rows.values()) > 0 for rows in qrels.values()):
        return {"reason": "qrels name relevant images alone, so that the junk images are not known"}
    values, groups, known = [], [], []
    for ranked in _ranked(measure, depths, qrels, queries, corpus):
        values.append(_MEASURES[measure](ranked, depths))
        groups.append(_group(ranked, measure))
        known.append(len(ranked.positives) > 0)
    if not any(known):
        raise UserError("No query has a relevant image.", "Fetch the qrels of the task again.")
    scored = np.array(known) | (measure not in ("revisited", "recognition"))
    table, gaps = np.array([list(each.values()) for each in values]), {}
    if measure == "recognition":
        gaps = {"gap": gap(table, sum(known)), "gap_known": gap(table[scored], sum(known))}
        table = table[:, :1]
    means = dict(zip(values[0], table[scored].mean(axis=0).tolist(), strict=False))
    classes = np.unique(groups, return_inverse=True)[1][scored]
    numbers = {**with_ends(means, class_intervals(table[scored], classes, CONFIDENCE)), **means, **gaps}
    counts = {"queries": int(scored.sum()), "others": int((~scored).sum())}
    return {**numbers, **counts, "source": source, "remark": remark}


def _ranked(
    measure: str, depths: tuple[int, ...], qrels: Qrels, queries: Vectors, corpus: Vectors
) -> Iterator[Ranked]:
    """The queries that qrels name, and distractors, in ascending order of their ids."""
    (query_ids, vectors), (corpus_ids, gallery) = queries, corpus
    of_all = measure == "recognition"
    chosen = np.array([row for row in np.argsort(query_ids) if of_all or query_ids[row] in qrels], np.int64)
    names, numbers = np.unique(np.concatenate([corpus_ids, query_ids[chosen]]), return_inverse=True)
    of_corpus, of_queries = np.split(numbers, [len(corpus_ids)])
    if measure != "recall":  # where an id of a query is not that of an image of the corpus
        of_queries = of_queries + len(names)
    depth = len(gallery) if measure == "revisited" else min(max(depths), len(gallery))
    for block in search_blocks(vectors[chosen], of_queries, gallery, of_corpus, depth):
        for place, rows, similarities in zip(*block, strict=True):
            query = str(query_ids[chosen[place]])
            lines = qrels.get(query, {})
            positives = {row for row, score in lines.items() if score > 0}
            ids = corpus_ids[rows[rows >= 0]].tolist()
            hits, judged = (np.array([row in of for row in ids], bool) for of in (positives, lines))
            yield Ranked(query, positives, hits, judged, similarities[: len(ids)])


def _group(ranked: Ranked, measure: str) -> str:
    """The class of a query."""
    if measure == "revisited" or not ranked.positives:
        return ranked.query
    return min(ranked.positives | ({ranked.query} if measure == "recall" else set()))


def _recall(ranked: Ranked, depths: tuple[int, ...]) -> dict[str, float]:
    return {f"recall_at_{k}": float(ranked.hits[:k].any()) for k in depths}


def _average(ranked: Ranked, depths: tuple[int, ...], tied: bool = False) -> dict[str, float]:
    scores = {}
    for k in depths:
        hits, falling = ranked.hits[:k], -ranked.similarities[:k]
        last = np.searchsorted(falling, falling, side="right") if tied else np.arange(1, len(hits) + 1)
        precisions = np.cumsum(hits)[last - 1] / last
        scores[f"map_at_{k}"] = float(precisions[hits].sum()) / max(1, min(k, len(ranked.positives)))
    return scores


def _revisited(ranked: Ranked, depths: tuple[int, ...]) -> dict[str, float]:
    ranks = np.flatnonzero(ranked.hits[ranked.judged])
    if not len(ranks):
        return {"map": 0.0, **{f"mp_at_{k}": 0.0 for k in depths}}
    area = trapezoidal_ap(ranks) * len(ranks) / len(ranked.positives)
    return {"map": area, **{f"mp_at_{k}": precision(ranks, k) for k in depths}}


def _recognition(ranked: Ranked, depths: tuple[int, ...]) -> dict[str, float]:
    return {"accuracy": float(ranked.hits[0]), "confidence": max(0.0, float(ranked.similarities[0]))}


_MEASURES: dict[str, Callable[..., dict[str, float]]] = {
    "recall": _recall,
    "average": _average,
    "tied": partial(_average, tied=True),
    "revisited": _revisited,
    "recognition": _recognition,
}


def gap(answers: Float64[np.ndarray, "Q 2"], known: int) -> float:
    """Global average precision. answers: if each is right, and its confidence. Equal ones stay in order."""
    right = answers[np.argsort(-answers[:, 1], kind="stable"), 0]
    return float(np.sum(right * np.cumsum(right) / np.arange(1, len(right) + 1))) / known
