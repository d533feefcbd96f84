"""What an approximate index makes of a model: its numbers beside the exact ones, and how much of the exact neighbours it finds."""

import dataclasses
from functools import partial

from pipeline.evaluation.evaluate import DIGITS, NEIGHBOURS, Extent, Sides, measured
from pipeline.evaluation.metrics import PerQuery, per_query
from pipeline.evaluation.protocol import Protocol
from pipeline.index.approximate import Index, approximate_blocks, build, declared, recall
from pipeline.index.kinds import Setting


def evaluate_index(sides: Sides, protocol: Protocol, setting: Setting, sample: int) -> tuple[Index, dict[str, float | int | str], PerQuery]:
    """The index of the gallery, its numbers, and the results of single queries.

    approximate_<metric> stands for the metric among what the index finds, with its interval, under a protocol of its own (`approximate_protocol`),
    as a relevant row that it does not find counts as ranked behind all others. approximate_search_recall_at_1 and _at_k: the share of the exact
    neighbours found, k = 10, on `sample` queries drawn by the protocol's seed.
    """
    index = build(sides.gallery.embedding, sides.gallery.row_id, setting)
    result = per_query(*sides, protocol.recall_at, 0, "evaluate: approximate", search=partial(approximate_blocks, index))
    found = measured(result, sides, protocol, Extent(full_ranking=False))
    k = min(NEIGHBOURS, max(1, len(sides.gallery.row_id) - 1))
    share = recall(index, sides.queries.embedding, sides.queries.row_id, k, sample, protocol.seed)
    metrics: dict[str, float | int | str] = {f"approximate_{name}": value for name, value in found.items()}
    metrics["approximate_search_recall_at_1"] = round(share.at_1, DIGITS)
    metrics[f"approximate_search_recall_at_{k}"] = round(share.at_k, DIGITS)
    metrics["approximate_protocol"] = dataclasses.replace(protocol, search=declared(setting)).hash()
    return index, metrics, result
