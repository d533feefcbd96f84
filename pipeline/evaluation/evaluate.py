"""The flat metrics and per-query results of several networks on the same rows, with intervals."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from unseen.evaluation.clustering import nmi
from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.metrics import PerQuery, averages, class_means, per_query
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.settings import OutsideMetric
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.intervals import class_intervals
from unseen.evaluation.tables import SELECTED
from unseen.runtime.errors import UserError
from unseen.runtime.parts import made

DIGITS = 10  # decimals in the files; rounding differences between machines are smaller, all intervals larger
NEIGHBOURS = 10  # per query in the neighbour tables


class Extent(NamedTuple):
    """The metrics beside Recall@K, R-precision and MAP@R, and the neighbours of the selected network."""

    full_ranking: bool = True  # map, and the rank of every first relevant row
    nmi: bool = False  # of all rows of both sides
    class_means: bool = False  # every metric also as class_mean_<name>, in which classes have equal weights
    own: Mapping[str, OutsideMetric] = {}  # metrics of a user, by name; they may read NEIGHBOURS
    neighbours: int = 0  # kept of each query


FULL_RANKING = Extent()


def evaluate(
    selected: Sides,
    others: dict[str, Sides],
    protocol: Protocol,
    extent: Extent = FULL_RANKING,
    counter: TileCounter = NumpyGallery,
    progress: bool = True,
) -> tuple[dict[str, float | int | str], dict[str, PerQuery]]:
    """Metrics of `selected` under their names and of each of `others` under `<network>_<name>`.

    With MIN_CLASSES classes or more (intervals.py), every metric except nmi has an interval in `_low` and
    `_high`. Further keys: queries (all), lone_queries
    (excluded from the averages), gallery, classes (of the gallery), protocol (its hash), and
    training_protocol. The second result contains the per-query results of SELECTED, with its neighbours, and
    of each of `others`. Networks with equal embeddings are ranked once. `counter` counts the tiles of
    products; no value depends on it. `progress` shows a line of progress.

    Raises UserError if no query has a relevant row, or if the networks have embeddings of different rows.
    """

    def ranked_rows(network: str, sides: Sides, keep: int = 0) -> PerQuery:
        label = f"evaluate: {network}" if progress else None
        full, keep = extent.full_ranking, NEIGHBOURS if extent.own else keep
        result = per_query(*sides, protocol.recall_at, keep, label, full, counter=counter)
        return result._replace(own={name: values_of(name, part, result) for name, part in extent.own.items()})

    result = ranked_rows(SELECTED, selected, extent.neighbours)
    results = {SELECTED: result}
    metrics: dict[str, float | int | str] = {
        "protocol": protocol.hash(),
        "training_protocol": protocol.training_protocol,
        "queries": len(result.row_id),
        "lone_queries": int((result.relevant == 0).sum()),
        "gallery": len(selected.gallery.row_id),
        "classes": len(np.unique(selected.gallery.label)),
    }
    ranked = {SELECTED: selected}
    values = {SELECTED: metrics_of(result, selected, protocol, extent)}
    metrics |= values[SELECTED]
    for network, sides in others.items():
        sides.require_rows_of(selected, network)
        equal = next((name for name, each in ranked.items() if _are_equal(each, sides)), None)
        if equal is None:
            results[network] = ranked_rows(network, sides)
            ranked[network], values[network] = sides, metrics_of(results[network], sides, protocol, extent)
        else:
            results[network], values[network] = results[equal], values[equal]
        metrics.update({f"{network}_{name}": value for name, value in values[network].items()})
    return metrics, results


def values_of(name: str, settings: OutsideMetric, result: PerQuery) -> Float64[np.ndarray, "Q"]:
    """The values of a metric of a user. Raises UserError unless each query that has a match has one."""
    values = np.asarray(made(settings, {"per_query": result}).values())
    expected = (result.row_id.shape, np.dtype(np.float64))
    if (values.shape, values.dtype) != expected or not np.isfinite(values[result.relevant > 0]).all():
        raise UserError(
            f"evaluate.metrics.{name}: `values` of {settings.module} returns an array {values.shape} of type "
            f"{values.dtype}; expected {expected[0]} of type float64, finite for each query with a match.",
            "Correct `values`.",
        )
    return values


def _are_equal(first: Sides, second: Sides) -> bool:
    """Whether two networks have the same embeddings of the same rows."""
    return all(np.array_equal(a.embedding, b.embedding) for a, b in zip(first, second, strict=True))


def metrics_of(result: PerQuery, sides: Sides, protocol: Protocol, extent: Extent) -> dict[str, float]:
    """The flat metrics of one network with their intervals.

    Raises UserError if no query has a relevant row.
    """
    means = averages(result)
    scored = result.relevant > 0
    columns = {name: values[scored] for name, values in result.columns().items()}
    columns["precision_at_1"] = (result.first[scored] == 1).astype(np.float64)
    means["precision_at_1"] = float(columns["precision_at_1"].mean())
    flat = _with_intervals(means, columns, result.label[scored], protocol)
    if extent.class_means:
        classes, of_class = class_means(result)
        of_class = {f"class_mean_{name}": values for name, values in of_class.items()}
        means = {name: float(values.mean()) for name, values in of_class.items()}
        flat.update(_with_intervals(means, of_class, classes, protocol))
    if extent.nmi:
        only_query = ~np.isin(sides.queries.row_id, sides.gallery.row_id)
        embeddings = np.concatenate([sides.gallery.embedding, sides.queries.embedding[only_query]])
        labels = np.concatenate([sides.gallery.label, sides.queries.label[only_query]])
        flat["nmi"] = round(nmi(embeddings, labels, protocol.seed), DIGITS)
    return flat


def _with_intervals(
    means: dict[str, float], columns: dict[str, np.ndarray], labels: np.ndarray, protocol: Protocol
) -> dict[str, float]:
    values = np.stack([columns[name] for name in means], axis=1)
    return with_ends(means, class_intervals(values, labels, protocol.confidence))


def with_ends(means: dict[str, float], ends: tuple[np.ndarray, np.ndarray] | None) -> dict[str, float]:
    """Rounded averages, each followed by the ends of its interval if there are intervals."""
    flat = {}
    for position, (name, mean) in enumerate(means.items()):
        flat[name] = round(mean, DIGITS)
        for end, values in zip(("low", "high"), ends or (), strict=False):
            flat[f"{name}_{end}"] = round(float(values[position]), DIGITS)
    return flat
