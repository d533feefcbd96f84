"""The flat metrics of a model beside those of its last weights and of its untrained network, and the per-query rows of each."""

from typing import NamedTuple

import numpy as np

from pipeline.evaluation.bootstrap import class_intervals
from pipeline.evaluation.clustering import nmi
from pipeline.evaluation.metrics import PerQuery, Rows, averages, class_means, per_query
from pipeline.evaluation.protocol import Protocol
from pipeline.runtime.errors import UserError

DIGITS = 10  # decimals written: far below any interval, above the last bits in which two machines may differ
NEIGHBOURS = 10  # of each query, kept for galleries of pictures
SELECTED = "selected"


class Sides(NamedTuple):
    """What is searched for, and among what; a row in both is not found by itself."""

    queries: Rows
    gallery: Rows


class Extent(NamedTuple):
    """What is measured beside Recall@K, R-precision and MAP@R."""

    full_ranking: bool = True  # map, and the rank of every first hit
    nmi: bool = False  # of all rows of both sides
    class_means: bool = False  # every metric as class_mean_<name> too: classes weigh alike, however many images they have


WHOLE_RANKING = Extent()


def evaluate(
    selected: Sides, others: dict[str, Sides], protocol: Protocol, extent: Extent = WHOLE_RANKING
) -> tuple[dict[str, float | int | str], dict[str, PerQuery]]:
    """Metrics of `selected` under their own names and of each of `others` under `<key>_<name>`, all but NMI with `_low` and `_high`.

    Beside them: queries (all), lone_queries (those not averaged), gallery, classes (in the gallery), and the hash of the protocol.
    Then the results of single queries: of SELECTED, with its neighbours, and of each of `others` under its key.
    Raises UserError where no query has a relevant image, or the models were not shown the same rows.
    """
    result = per_query(*selected, protocol.recall_at, NEIGHBOURS, f"evaluate: {SELECTED}", extent.full_ranking)
    results = {SELECTED: result}
    metrics: dict[str, float | int | str] = {
        "protocol": protocol.hash(),
        "queries": len(result.row_id),
        "lone_queries": int((result.relevant == 0).sum()),
        "gallery": len(selected.gallery.row_id),
        "classes": len(np.unique(selected.gallery.label)),
        **measured(result, selected, protocol, extent),
    }
    for name, sides in others.items():
        for ours, theirs in zip(selected, sides, strict=True):
            if not np.array_equal(ours.row_id, theirs.row_id) or not np.array_equal(ours.label, theirs.label):
                raise UserError(f"The {name} model was not shown the same rows as the selected one.", "Export all models of the run anew.")
        results[name] = per_query(*sides, protocol.recall_at, 0, f"evaluate: {name}", extent.full_ranking)
        metrics.update({f"{name}_{metric}": value for metric, value in measured(results[name], sides, protocol, extent).items()})
    return metrics, results


def measured(result: PerQuery, sides: Sides, protocol: Protocol, extent: Extent) -> dict[str, float]:
    """The flat metrics of one model, each mean with its interval. Raises UserError where no query has a relevant image."""
    means = averages(result)
    scored = result.relevant > 0
    columns = {name: values[scored] for name, values in result.columns().items()}
    columns["precision_at_1"] = (result.first[scored] == 1).astype(np.float64)
    means["precision_at_1"] = float(columns["precision_at_1"].mean())
    flat = _with_intervals(means, columns, result.label[scored], protocol)
    if extent.class_means:
        classes, of_class = class_means(result)
        of_class = {f"class_mean_{name}": values for name, values in of_class.items()}
        flat.update(_with_intervals({name: float(values.mean()) for name, values in of_class.items()}, of_class, classes, protocol))
    if extent.nmi:
        extra = ~np.isin(sides.queries.row_id, sides.gallery.row_id)
        embeddings = np.concatenate([sides.gallery.embedding, sides.queries.embedding[extra]])
        flat["nmi"] = round(nmi(embeddings, np.concatenate([sides.gallery.label, sides.queries.label[extra]]), protocol.seed), DIGITS)
    return flat


def _with_intervals(means: dict[str, float], columns: dict[str, np.ndarray], labels: np.ndarray, protocol: Protocol) -> dict[str, float]:
    low, high = class_intervals(np.stack([columns[name] for name in means], axis=1), labels, protocol.bootstrap, protocol.confidence, protocol.seed)
    flat = {}
    for position, (name, mean) in enumerate(means.items()):
        flat[name] = round(mean, DIGITS)
        flat[f"{name}_low"] = round(float(low[position]), DIGITS)
        flat[f"{name}_high"] = round(float(high[position]), DIGITS)
    return flat
