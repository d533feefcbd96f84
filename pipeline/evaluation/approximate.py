"""Metrics of the neighbours that an index retrieves, and the recall of the index against exact search.

A metric of an index is a metric of the network and the index together. It is not a benchmark result, so it
has its own protocol, which contains the setting of the index.
"""

import dataclasses
from functools import partial

from unseen.evaluation.evaluate import DIGITS, NEIGHBOURS, Extent, metrics_of
from unseen.evaluation.index.index import build, search_blocks
from unseen.evaluation.index.recall import recall
from unseen.evaluation.metrics import PerQuery, per_query
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.settings import Setting
from unseen.evaluation.sides import Sides


def evaluate_index(
    sides: Sides, protocol: Protocol, setting: Setting, sample: int
) -> tuple[dict[str, float | int | str], PerQuery]:
    """Builds the index of the gallery and gives its metrics and per-query results.

    approximate_<metric>: the metric with its interval; a relevant row that the index does not retrieve counts
    as ranked after all other rows. approximate_protocol: the hash of its protocol.
    approximate_search_recall_at_1 and _at_k, k = 10: the recall on `sample` queries, drawn with the
    protocol's seed.
    """
    queries, gallery = sides
    index = build(gallery.embedding, gallery.row_id, setting)
    search = partial(search_blocks, index)
    result = per_query(*sides, protocol.recall_at, 0, "evaluate: approximate", search=search)
    values = metrics_of(result, sides, protocol, Extent(full_ranking=False))
    metrics: dict[str, float | int | str] = {f"approximate_{name}": value for name, value in values.items()}
    k = min(NEIGHBOURS, max(1, len(gallery.row_id) - 1))
    measured = recall(
        index,
        gallery.embedding,
        gallery_ids=gallery.row_id,
        queries=queries.embedding,
        query_ids=queries.row_id,
        k=k,
        sample=sample,
        seed=protocol.seed,
    )
    metrics["approximate_search_recall_at_1"] = round(measured.at_1, DIGITS)
    metrics[f"approximate_search_recall_at_{k}"] = round(measured.at_k, DIGITS)
    metrics["approximate_protocol"] = dataclasses.replace(protocol, search=declaration(setting)).hash()
    return metrics, result


def declaration(setting: Setting) -> str:
    """The value of `search` in the protocol of an index with this setting."""
    values = ", ".join(f"{name} {value}" for name, value in setting.model_dump(exclude={"kind"}).items())
    return f"approximate, {setting.kind}: {values}; candidates scored and ordered as in exact search"
