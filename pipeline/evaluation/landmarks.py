"""Several revisited benchmarks in one set of embeddings, each judged by its own ground truth, as revisited.py does it.

The queries of a benchmark are those that its ground truth names; its gallery are the rows of the same label, which the label of a landmark set says
and nothing else. Numbers are flat: <benchmark>_<level>_map, <benchmark>_<level>_mp_at_<k>, with the level easy, medium or hard.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int64

from pipeline.evaluation.bootstrap import class_intervals
from pipeline.evaluation.evaluate import DIGITS, NEIGHBOURS, Sides
from pipeline.evaluation.metrics import Rows
from pipeline.evaluation.protocol import Declared
from pipeline.evaluation.revisited import LEVELS, PRECISION_AT, Scores, Truth, averages, revisited
from pipeline.index.exact import exact_search
from pipeline.runtime.errors import UserError


@dataclass(frozen=True)
class LandmarkProtocol(Declared):
    """The declaration of what landmark numbers mean. An edit of any word here gives every such metrics file another hash."""

    split: str
    bootstrap: int
    confidence: float
    seed: int
    reduction: str = "none"
    precision_at: tuple[int, ...] = PRECISION_AT
    queries: str = "the images that the ground truth of a benchmark names, cut to their boxes"
    gallery: str = "the database of the same benchmark"
    normalisation: str = "embeddings are stored as unit vectors in float32"
    similarity: str = "inner product, accumulated in float64, rounded to float32"
    ties: str = "equal similarities in ascending order of row id"
    search: str = "exact, all gallery rows"
    easy: str = "sought easy, taken out of the ranking junk and hard"
    medium: str = "sought easy and hard, taken out junk"
    hard: str = "sought hard, taken out junk and easy"
    map: str = "mean area under the precision-recall line by trapezoids, over queries with something to find at the level"
    mp_at_k: str = "mean share of the sought among the first k, or among as many as the last of them needs"
    interval: str = "percentiles of the average over queries resampled with replacement"


class Ranked(NamedTuple):
    """The whole gallery of a benchmark for each of its queries, nearest first."""

    name: str
    queries: Rows
    ids: Int64[np.ndarray, "Q N"]
    similarities: Float32[np.ndarray, "Q N"]
    truths: list[Truth]


class Judged(NamedTuple):
    metrics: dict[str, float | int | str]
    queries: pa.Table  # row_id, label, benchmark, relevant (easy and hard), <level>_ap, <level>_precision_at_<k>; null where nothing is sought
    neighbours: pa.Table  # row_id, neighbours, similarities: the nearest of the whole gallery, junk among them
    others: dict[str, pa.Table]  # as `queries`, of each other model


def evaluate_landmarks(selected: Sides, others: dict[str, Sides], ground_truth: pa.Table, protocol: LandmarkProtocol) -> Judged:
    """Metrics of `selected` under their own names and of each of `others` under `<key>_<name>`, with `_low` and `_high`.

    Beside them: queries, lone_queries (nothing to find at any level), gallery, <benchmark>_<level>_queries (those averaged), the protocol's hash.
    ground_truth: benchmark, query, easy, hard, junk in row ids. Raises UserError where it names rows that are not there, where nothing is to be found
    at a level, or the models were not shown the same rows.
    """
    for name, sides in others.items():
        if not all(np.array_equal(ours.row_id, theirs.row_id) for ours, theirs in zip(selected, sides, strict=True)):
            raise UserError(f"The {name} model was not shown the same rows as the selected one.", "Export all models of the run anew.")
    ranked = list(_rank(selected, ground_truth))
    scores = {one.name: revisited(one.ids, one.truths, protocol.precision_at) for one in ranked}
    metrics: dict[str, float | int | str] = {
        "protocol": protocol.hash(),
        "queries": sum(len(one.truths) for one in ranked),
        "lone_queries": sum(not len(truth.easy) and not len(truth.hard) for one in ranked for truth in one.truths),
        "gallery": sum(one.ids.shape[1] for one in ranked),
        **{f"{name}_{level}_queries": averages(levels)[f"queries_{level}"] for name, levels in scores.items() for level in LEVELS},
        **_measured(scores, protocol),
    }
    tables = {}
    for name, sides in others.items():
        found = list(_rank(sides, ground_truth))
        theirs = {one.name: revisited(one.ids, one.truths, protocol.precision_at) for one in found}
        metrics.update({f"{name}_{metric}": value for metric, value in _measured(theirs, protocol).items()})
        tables[name] = _queries(found, theirs)
    return Judged(metrics, _queries(ranked, scores), _neighbours(ranked), tables)


def _rank(sides: Sides, ground_truth: pa.Table) -> Iterator[Ranked]:
    table = ground_truth.to_pydict()
    names = np.array(table["benchmark"], np.str_)
    for name in dict.fromkeys(table["benchmark"]):
        chosen = np.flatnonzero(names == name).tolist()
        truths = [Truth(*(np.array(table[kind][place], np.int64) for kind in Truth._fields)) for place in chosen]
        queries = _rows(sides.queries, np.array([table["query"][place] for place in chosen], np.int64), name)
        if len(labels := np.unique(queries.label)) > 1:
            raise UserError(f"The queries of {name} have {len(labels)} labels; the label says of which benchmark a row is.", "Ingest the set anew.")
        members = sides.gallery.label == labels[0]
        gallery = Rows(*(column[members] for column in sides.gallery))
        yield Ranked(name, queries, *exact_search(queries.embedding, queries.row_id, gallery.embedding, gallery.row_id, len(gallery.row_id)), truths)


def _rows(rows: Rows, ids: Int64[np.ndarray, "Q"], name: str) -> Rows:
    if len(missing := ids[~np.isin(ids, rows.row_id)]):
        raise UserError(f"The ground truth of {name} names query {missing[0]}, which was not embedded.", "Ingest and export the data set anew.")
    places = np.searchsorted(rows.row_id, ids)  # embedding files ascend by row id
    return Rows(*(column[places] for column in rows))


def _measured(scores: dict[str, dict[str, Scores]], protocol: LandmarkProtocol) -> dict[str, float]:
    flat = {}
    for name, levels in scores.items():
        means = averages(levels)
        for level, score in levels.items():
            scored = ~np.isnan(score.ap)
            values = np.concatenate([score.ap[:, None], score.precision], axis=1)[scored]
            ends = class_intervals(values, np.arange(len(values)), protocol.bootstrap, protocol.confidence, protocol.seed)
            for column, metric in enumerate(["map", *(f"mp_at_{k}" for k in score.precision_at)]):
                mean = means[f"{metric}_{level}"]
                for end, value in (("", mean), ("_low", ends[0][column]), ("_high", ends[1][column])):
                    flat[f"{name}_{level}_{metric}{end}"] = round(float(value), DIGITS)
    return flat


def _queries(ranked: list[Ranked], scores: dict[str, dict[str, Scores]]) -> pa.Table:
    tables = []
    for one in ranked:
        columns = {
            "row_id": pa.array(one.queries.row_id),
            "label": pa.array(one.queries.label),
            "benchmark": pa.array([one.name] * len(one.truths)),
            "relevant": pa.array([len(truth.easy) + len(truth.hard) for truth in one.truths], pa.int64()),
        }
        for level, score in scores[one.name].items():
            columns[f"{level}_ap"] = pa.array(score.ap, mask=np.isnan(score.ap))
            for column, k in enumerate(score.precision_at):
                columns[f"{level}_precision_at_{k}"] = pa.array(score.precision[:, column], mask=np.isnan(score.ap))
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _neighbours(ranked: Iterable[Ranked]) -> pa.Table:
    tables = [
        pa.table(
            {
                "row_id": pa.array(one.queries.row_id),
                "neighbours": pa.array(one.ids[:, :NEIGHBOURS].tolist(), pa.list_(pa.int64())),
                "similarities": pa.array(one.similarities[:, :NEIGHBOURS].tolist(), pa.list_(pa.float32())),
            }
        )
        for one in ranked
    ]
    return pa.concat_tables(tables)
