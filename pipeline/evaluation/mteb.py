"""An image-retrieval task of MIEB (mteb): the numbers of mteb 2.26 and the exact ones, of given vectors.

Of mteb: each query has a run, its TOP rows of the corpus by cosine similarity in float32. Some tasks drop the
first row of the run, whatever it is: of equal similarities the one that the heap of the search lists first.
The rest is ranked by similarity; of equal ones the greater id, as text, is first. With g_r the score of the
row at rank r, R the rows with a positive score (in the corpus or not), and h_k those in the first k:

    recall_at_k     h_k / R                  map_at_k   1/R sum of h_r / r over r <= k with g_r > 0
    precision_at_k  h_k / k                  ndcg_at_k  sum of g_r / log2(r + 1) over r <= k, over the largest
    hit_rate_at_k   1 if h_k > 0, else 0     mrr_at_k   1 / r of the first with g_r > 0, if r <= k, else 0

A query that no line of qrels names is left out; one with R = 0 counts as 0. Means are rounded to 5 decimals,
except mrr. Source: the definitions of trec_eval and of mteb's retrieval evaluator.

Exact: Recall@K, MAP@R and so on of evaluate.py with intervals over classes, if the qrels are those of
classes: the image itself is left out by its id. Official: official.py.
"""

import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from unseen.data.tables import read_table, table_files
from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.evaluate import Extent, evaluate
from unseen.evaluation.external import Settings
from unseen.evaluation.metrics import Rows
from unseen.evaluation.official import OFFICIAL, Qrels, Vectors, official
from unseen.evaluation.sides import Sides
from unseen.evaluation.vectors import ONE_MODEL, column_of, matrix_of, unit_vectors
from unseen.runtime.errors import UserError

K = (1, 3, 5, 10, 20, 100, 1000)
TOP = max(K)
VERSION = "2.26.24"  # of mteb, whose definitions these are
_BLOCK = 512  # queries at a time
_CELLS = 1 << 25  # similarities in memory at a time, about 12 bytes each


class Task(NamedTuple):
    """The settings of a task in mteb. No main score: mteb lacks the task."""

    main_score: str | None
    skips_first: bool


_LANDMARKS = [
    f"R{place}{level}I2IRetrieval" for place in ("Oxford", "Paris") for level in ("Easy", "Medium", "Hard")
]
TASKS = {
    **dict.fromkeys(
        (
            "CUB200I2IRetrieval",
            "StanfordCarsI2IRetrieval",
            "SOPI2IRetrieval",
            "RP2kI2IRetrieval",
            "METI2IRetrieval",
        ),
        Task("hit_rate_at_1", True),
    ),
    **dict.fromkeys(_LANDMARKS, Task("map_at_5", False)),
    "GLDv2I2IRetrieval": Task("ndcg_at_10", False),
    "ILIAS": Task(None, False),
}


def evaluate_task(folder: Path, queries: Path, corpus: Path, name: str) -> dict[str, Any]:
    """The result file of mteb for the task in `folder`, with the exact numbers below `unseen`.

    folder: contains the tables of `qrels` (query-id, corpus-id, score). queries, corpus: tables, or folders
    of tables, with the columns `id` and `embedding`. Raises UserError for an unknown task, a table that is
    damaged, a vector that is zero or not finite, and a line of qrels whose query has no vector.
    """
    if name not in TASKS:
        raise UserError(f"Unknown task {name}.", f"Known are: {', '.join(TASKS)}.")
    qrels = read_qrels(folder / "qrels")
    sides = [_vectors(path) for path in (queries, corpus)]
    if (dims := [x.shape[1] for _, x in sides])[0] != dims[1]:
        raise UserError(f"{queries} has {dims[0]:,} dimensions, {corpus} {dims[1]:,}.", ONE_MODEL)
    if missing := qrels.keys() - set(sides[0][0].tolist()):
        raise UserError(f"{queries} has no vector of query {min(missing)}.", "Embed all queries.")
    task = TASKS[name]
    scores = mteb_scores(qrels, runs(*sides[0], *sides[1]), task.skips_first)
    entry = {
        **scores,
        "main_score": scores[task.main_score] if task.main_score else None,
        "hf_subset": "default",
        "languages": ["eng-Latn"],
    }
    return {
        "task_name": name,
        "dataset_revision": "from files",
        "mteb_version": VERSION,
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "scores": {"test": [entry]},
        "unseen": exact(qrels, *sides[0], *sides[1], OFFICIAL[name].measure),
        "official": official(name, qrels, *sides),
    }


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """The score of each row of the corpus by query and id."""
    qrels: dict[str, dict[str, int]] = {}
    for file in table_files(path):
        table = read_table(file, "Fetch the task again.")
        if missing := {"query-id", "corpus-id", "score"} - set(table.column_names):
            raise UserError(
                f"{file} has no column {', '.join(sorted(missing))}.", "Name the folder of a task."
            )
        columns = (column_of(file, table, name).tolist() for name in ("query-id", "corpus-id", "score"))
        for query, row, score in zip(*columns, strict=True):
            qrels.setdefault(str(query), {})[str(row)] = int(score)
    return qrels


def _vectors(path: Path) -> Vectors:
    """Ids as text, and (N, D) unit vectors."""
    ids, embeddings = [], []
    for file in table_files(path):
        table = read_table(file, "Write the file again.")
        if missing := {"id", "embedding"} - set(table.column_names):
            raise UserError(f"{file} has no column {', '.join(sorted(missing))}.", "Write both.")
        ids += list(map(str, column_of(file, table, "id").tolist()))
        embeddings.append(unit_vectors(matrix_of(file, table["embedding"]), str(file), normalize=True))
    if len(set(ids)) < len(ids):
        raise UserError(f"{path} has ids that occur twice.", "Write each image once.")
    return np.array(ids), np.concatenate(embeddings)


def runs(
    query_ids: np.ndarray,
    queries: Float32[np.ndarray, "Q D"],
    corpus_ids: np.ndarray,
    corpus: Float32[np.ndarray, "N D"],
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each query with the similarities of its run by id, in the order of mteb's heap."""
    names = corpus_ids.tolist()
    block = max(1, min(_BLOCK, _CELLS // len(corpus)))
    for start in range(0, len(queries), block):
        similarities: Float32[np.ndarray, "B N"] = queries[start : start + block] @ corpus.T
        order = np.argsort(-similarities, axis=1, kind="stable")[:, :TOP]
        for query, row, near in zip(query_ids[start:].tolist(), similarities, order, strict=False):
            heap: list[tuple[float, str]] = []
            for position in near.tolist():
                heapq.heappush(heap, (float(row[position]), names[position]))
            yield query, {name: similarity for similarity, name in heap}


def mteb_scores(
    qrels: Qrels, runs: Iterator[tuple[str, dict[str, float]]], skips_first: bool
) -> dict[str, float]:
    """The scores of mteb by name, such as hit_rate_at_1."""
    values = []
    for query, run in runs:
        if query in qrels:
            if skips_first:
                run = dict(sorted(run.items(), key=lambda item: item[1], reverse=True)[1:])
            values.append(_scores(qrels[query], run))
    if not values:
        raise UserError("No query has a line in qrels.", "Name the vectors of the queries of this task.")
    means = {name: sum(each[name] for each in values) / len(values) for name in values[0]}
    rounded = {name: mean if name.startswith("mrr") else round(mean, 5) for name, mean in means.items()}
    return {**rounded, "accuracy": rounded["recall_at_1"]}


def _scores(relevant: Mapping[str, int], run: Mapping[str, float]) -> dict[str, float]:
    """The scores of one query."""
    ranked = sorted(run, key=lambda row: (run[row], row), reverse=True)[:TOP]
    gains: Float64[np.ndarray, K] = np.array([max(0, relevant.get(row, 0)) for row in ranked], np.float64)
    ideal = np.array(sorted((score for score in relevant.values() if score > 0), reverse=True), np.float64)
    hits = np.cumsum(gains > 0)
    precision = np.cumsum((gains > 0) * hits / np.arange(1, len(gains) + 1))
    first = int(np.argmax(gains > 0)) + 1 if hits[-1:].any() else TOP + 1
    scores: dict[str, float] = {}
    for k in K:
        found, total = float(hits[min(k, len(hits)) - 1]) if len(hits) else 0.0, max(len(ideal), 1)
        best = _discounted(ideal[:k])
        scores |= {
            f"ndcg_at_{k}": _discounted(gains[:k]) / best if best else 0.0,
            f"map_at_{k}": float(precision[min(k, len(hits)) - 1]) / total if len(hits) else 0.0,
            f"recall_at_{k}": found / total,
            f"precision_at_{k}": found / k,
            f"mrr_at_{k}": 1 / first if first <= k else 0.0,
            f"hit_rate_at_{k}": float(found > 0),
        }
    return scores


def _discounted(gains: Float64[np.ndarray, "K"]) -> float:
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def exact(
    qrels: Qrels,
    query_ids: np.ndarray,
    queries: Float32[np.ndarray, "Q D"],
    corpus_ids: np.ndarray,
    corpus: Float32[np.ndarray, "N D"],
    measure: str = "recall",
) -> dict[str, Any]:
    """The metrics of evaluate.py with intervals, or `reason`, why the qrels do not define them. measure: that
    of official.py; an id is one image in queries and corpus if it is `recall`."""
    if measure == "revisited":
        return {"reason": "a landmark has no classes: its numbers are below `official`"}
    numbers, labels = _classes(qrels, query_ids, corpus_ids, measure == "recall")
    if labels is None:
        return {"reason": "the relevant rows of a query are not all images of one class in the corpus"}
    given = ((numbers["query"], queries), (numbers["corpus"], corpus))
    sides = Sides(*(Rows(of_side, labels[of_side], embeddings) for of_side, embeddings in given))
    protocol = Settings(normalize=True).protocol()
    metrics, _ = evaluate(sides, {}, protocol, Extent(), tile_counter(), progress=False)
    return metrics


def _classes(
    qrels: Qrels, query_ids: np.ndarray, corpus_ids: np.ndarray, is_one_set: bool
) -> tuple[dict[str, Int64[np.ndarray, "N"]], Int64[np.ndarray, "I"] | None]:
    """The numbers of the images of both sides, by id, and the class of each image: what relevance connects.
    None instead of the classes if a query lacks an image of its class as relevant. is_one_set: an id is one
    image on both sides."""
    names, inverse = np.unique(np.concatenate([query_ids, corpus_ids]), return_inverse=True)
    count = len(names) * (1 if is_one_set else 2)
    of_queries, of_corpus = np.split(inverse, [len(query_ids)])
    of_queries = of_queries + count - len(names)
    query_of, row_of = (
        dict(zip(ids.tolist(), numbers.tolist(), strict=True))
        for ids, numbers in ((query_ids, of_queries), (corpus_ids, of_corpus))
    )
    pairs = np.array(
        [
            (query_of[query], row_of[row])
            for query, scores in qrels.items()
            for row, score in scores.items()
            if score > 0 and row in row_of
        ],
        np.int64,
    ).reshape(-1, 2)
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (count, count))
    classes = connected_components(graph, directed=False)[1].astype(np.int64)
    in_corpus = np.zeros(count, bool)
    in_corpus[of_corpus] = True
    sizes = np.bincount(classes[in_corpus], minlength=count)
    others = pairs[pairs[:, 0] != pairs[:, 1]]
    relevant = np.bincount(others[:, 0], minlength=count)[of_queries]
    expected = sizes[classes[of_queries]] - in_corpus[of_queries]
    numbers = {"query": of_queries, "corpus": of_corpus}
    return numbers, classes if np.array_equal(relevant, expected) else None
