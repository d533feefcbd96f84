"""Metrics of revisited benchmarks (revisited.py), several of which can be in one set of embeddings.

The ground truth of a benchmark lists its queries. Its gallery consists of the rows with the same label: in a
landmark set the label is the number of the benchmark. Metrics are flat: <benchmark>_<level>_map and
<benchmark>_<level>_mp_at_<k>, with level easy, medium or hard.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Float32, Int64

from unseen.evaluation.evaluate import NEIGHBOURS, with_ends
from unseen.evaluation.index.exact import exact_search
from unseen.evaluation.metrics import Rows
from unseen.evaluation.protocol import INTERVAL, Declared, Protocol
from unseen.evaluation.revisited import LEVELS, PRECISION_AT, Scores, Truth, averages, revisited
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.intervals import class_intervals
from unseen.runtime.errors import UserError


@dataclass(frozen=True)
class LandmarkProtocol(Declared):
    """The protocol of landmark benchmarks.

    Each word is part of the hash: edit a word only if the meaning changes.
    """

    split: str
    confidence: float
    seed: int
    reduction: str = "none"
    training_protocol: str = "selected"  # training.protocol of the recipe
    precision_at: tuple[int, ...] = PRECISION_AT
    queries: str = "the images that the ground truth of a benchmark names, cut to their boxes"
    gallery: str = "the database of the same benchmark"
    normalisation: str = Protocol.normalisation
    similarity: str = "inner product, accumulated in float64, rounded to float32"
    ties: str = "equal similarities in ascending order of row id"
    search: str = "exact, all gallery rows"
    easy: str = "sought easy, taken out of the ranking junk and hard"
    medium: str = "sought easy and hard, taken out junk"
    hard: str = "sought hard, taken out junk and easy"
    map: str = (
        "mean area under the precision-recall line by trapezoids, "
        "over queries with something to find at the level"
    )
    mp_at_k: str = "mean share of the sought among the first k, or among as many as the last of them needs"
    interval: str = f"of the average over queries, each a class: {INTERVAL}"


class Ranked(NamedTuple):
    """The ranking of the whole gallery of a benchmark for each of its queries."""

    benchmark: str
    queries: Rows
    ids: Int64[np.ndarray, "Q N"]
    similarities: Float32[np.ndarray, "Q N"]
    truths: list[Truth]


class LandmarkResults(NamedTuple):
    """Flat metrics and tables with one row per query.

    Columns of a table of queries: row_id, label, benchmark, relevant (easy and hard), <level>_ap and
    <level>_precision_at_<k>; the last two are null if the query has nothing to find at the level.
    """

    metrics: dict[str, float | int | str]
    queries: pa.Table  # of the selected network
    neighbours: pa.Table  # row_id, neighbours, similarities: the nearest of the whole gallery, including junk
    others: dict[str, pa.Table]  # the table of queries of each other network


def evaluate_landmarks(
    selected: Sides, others: dict[str, Sides], ground_truth: pa.Table, protocol: LandmarkProtocol
) -> LandmarkResults:
    """Metrics of `selected` under their names and of each of `others` under `<network>_<name>`.

    With MIN_CLASSES queries or more (intervals.py), a metric has an interval in `_low` and `_high`. Further
    keys: queries, lone_queries (nothing to find at any level), gallery, <benchmark>_<level>_queries (those
    averaged), protocol (its hash), and training_protocol. Columns of ground_truth: benchmark, query, easy,
    hard, junk, as row ids.

    Raises UserError if the ground truth contains a row that is not in the embeddings, if no query has
    anything to find at a level, or if the networks have embeddings of different rows.
    """
    for network, sides in others.items():
        sides.require_rows_of(selected, network)
    rankings = list(_rank(selected, ground_truth))
    scores = _scores(rankings, protocol)
    metrics: dict[str, float | int | str] = {
        "protocol": protocol.hash(),
        "training_protocol": protocol.training_protocol,
        "queries": sum(len(ranked.truths) for ranked in rankings),
        "lone_queries": sum(
            not len(truth.easy) and not len(truth.hard) for ranked in rankings for truth in ranked.truths
        ),
        "gallery": sum(ranked.ids.shape[1] for ranked in rankings),
        **{
            f"{benchmark}_{level}_queries": averages(levels)[f"queries_{level}"]
            for benchmark, levels in scores.items()
            for level in LEVELS
        },
        **_metrics(scores, protocol),
    }
    tables = {}
    for network, sides in others.items():
        ranked = list(_rank(sides, ground_truth))
        of_network = _scores(ranked, protocol)
        metrics |= {f"{network}_{name}": value for name, value in _metrics(of_network, protocol).items()}
        tables[network] = _queries(ranked, of_network)
    return LandmarkResults(metrics, _queries(rankings, scores), _neighbours(rankings), tables)


def _rank(sides: Sides, ground_truth: pa.Table) -> Iterator[Ranked]:
    table = ground_truth.to_pydict()
    benchmarks = np.array(table["benchmark"], np.str_)
    for benchmark in dict.fromkeys(table["benchmark"]):
        chosen = np.flatnonzero(benchmarks == benchmark).tolist()
        truths = [Truth(*(np.array(table[kind][row], np.int64) for kind in Truth._fields)) for row in chosen]
        ids = np.array([table["query"][row] for row in chosen], np.int64)
        queries = _rows(sides.queries, ids, benchmark)
        if len(labels := np.unique(queries.label)) > 1:
            raise UserError(
                f"The queries of {benchmark} have {len(labels)} labels, but a benchmark has one label.",
                "Ingest the data set again.",
            )
        members = sides.gallery.label == labels[0]
        gallery = Rows(*(column[members] for column in sides.gallery))
        neighbours = exact_search(
            queries.embedding, queries.row_id, gallery.embedding, gallery.row_id, len(gallery.row_id)
        )
        yield Ranked(benchmark, queries, *neighbours, truths)


def _rows(rows: Rows, ids: Int64[np.ndarray, "Q"], benchmark: str) -> Rows:
    if len(missing := ids[~np.isin(ids, rows.row_id)]):
        raise UserError(
            f"The embeddings lack query {missing[0]} of the ground truth of {benchmark}.",
            "Ingest and export the data set again.",
        )
    places = np.searchsorted(rows.row_id, ids)  # row ids ascend in embedding files
    return Rows(*(column[places] for column in rows))


def _scores(rankings: list[Ranked], protocol: LandmarkProtocol) -> dict[str, dict[str, Scores]]:
    """Scores by benchmark and level."""
    return {
        ranked.benchmark: revisited(ranked.ids, ranked.truths, protocol.precision_at) for ranked in rankings
    }


def _metrics(scores: dict[str, dict[str, Scores]], protocol: LandmarkProtocol) -> dict[str, float]:
    flat: dict[str, float] = {}
    for benchmark, levels in scores.items():
        means = averages(levels)
        for level, score in levels.items():
            scored = ~np.isnan(score.ap)
            values = np.concatenate([score.ap[:, None], score.precision], axis=1)[scored]
            ends = class_intervals(values, np.arange(len(values)), protocol.confidence)
            names = ("map", *(f"mp_at_{k}" for k in score.precision_at))
            of_level = {f"{benchmark}_{level}_{name}": means[f"{name}_{level}"] for name in names}
            flat |= with_ends(of_level, ends)
    return flat


def _queries(rankings: list[Ranked], scores: dict[str, dict[str, Scores]]) -> pa.Table:
    tables = []
    for ranked in rankings:
        columns = {
            "row_id": pa.array(ranked.queries.row_id),
            "label": pa.array(ranked.queries.label),
            "benchmark": pa.array([ranked.benchmark] * len(ranked.truths)),
            "relevant": pa.array([len(truth.easy) + len(truth.hard) for truth in ranked.truths], pa.int64()),
        }
        for level, score in scores[ranked.benchmark].items():
            unscored = np.isnan(score.ap)
            columns[f"{level}_ap"] = pa.array(score.ap, mask=unscored)
            for column, k in enumerate(score.precision_at):
                columns[f"{level}_precision_at_{k}"] = pa.array(score.precision[:, column], mask=unscored)
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def _neighbours(rankings: Iterable[Ranked]) -> pa.Table:
    tables = []
    for ranked in rankings:
        ids, similarities = (
            pa.array(values[:, :NEIGHBOURS].tolist(), pa.list_(kind))
            for values, kind in ((ranked.ids, pa.int64()), (ranked.similarities, pa.float32()))
        )
        columns = {"row_id": pa.array(ranked.queries.row_id), "neighbours": ids, "similarities": similarities}
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)
