"""The evaluation of one run: all networks with exported embeddings, and all output files."""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.evaluate import DIGITS, NEIGHBOURS, Extent, evaluate, metrics_of
from unseen.evaluation.index.index import build, search_blocks
from unseen.evaluation.index.recall import recall
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.metrics import PerQuery, per_query
from unseen.evaluation.protocol import Declared, Protocol
from unseen.evaluation.reduction import Reduction, apply, learned_reduction, save
from unseen.evaluation.settings import EvaluateSettings, Setting
from unseen.evaluation.sides import Sides, read_sides, sides_of
from unseen.evaluation.tables import SELECTED, file_of, neighbour_table, query_table, write_table
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json

GROUND_TRUTH = "ground_truth.parquet"
FILES = {
    "last": "test-last.arrow",
    "untrained": "test-untrained.arrow",
    "features": "test-features.arrow",
    "best_on_test": "test-best.arrow",
}
OPTIONAL = ("best_on_test",)


class Evaluation(NamedTuple):
    """The results of a run."""

    metrics: dict[str, float | int | str]
    protocol: Declared
    queries: dict[str, pa.Table]  # per-query results by network
    neighbours: pa.Table  # of the selected network
    reduction: Reduction | None


def evaluate_run(folder: Path, settings: EvaluateSettings, counter: TileCounter = NumpyGallery) -> Evaluation:
    """Evaluates the networks whose test embeddings are in `folder`.

    These are the selected weights, the last weights, the untrained network, its features without a
    projection, and, if exported, the weights that were best on the test classes. Optional are the selected
    embeddings after a reduction learned on the train images, and their metrics by an approximate index. A
    folder with a ground truth is evaluated by the landmark protocol. `counter` counts the tiles of products;
    no value depends on it.

    Raises UserError for a missing or damaged file, and as `evaluate` and `evaluate_landmarks` do.
    """
    selected = read(folder / "test.arrow")
    others = {
        network: read_sides(folder / file)
        for network, file in FILES.items()
        if network not in OPTIONAL or (folder / file).is_file()
    }
    reduction = None
    if settings.reduce is not None:
        reduction = learned_reduction(settings.reduce, folder, "evaluate.reduce")
        reduced = selected._replace(embedding=apply(reduction, selected.embedding))
        others["reduced"] = sides_of(reduced)
    if (folder / GROUND_TRUTH).is_file():
        return _landmarks(selected, others, reduction, pq.read_table(folder / GROUND_TRUTH), settings)
    return _retrieval(selected, others, reduction, settings, counter)


def write(directory: Path, evaluation: Evaluation) -> None:
    """Writes metrics, per-query results, neighbours, protocol and reduction."""
    write_json(directory / "metrics.json", evaluation.metrics)
    for network, table in evaluation.queries.items():
        write_table(directory / file_of(network), table)
    write_table(directory / "neighbours.parquet", evaluation.neighbours)
    if evaluation.reduction is not None:
        save(directory / "reduction.safetensors", evaluation.reduction)
    write_json(directory / "protocol.json", evaluation.protocol.declaration())


def _retrieval(
    selected: Embeddings,
    others: dict[str, Sides],
    reduction: Reduction | None,
    settings: EvaluateSettings,
    counter: TileCounter,
) -> Evaluation:
    sides = sides_of(selected)
    own = {
        name: part.model_dump(mode="json") | {"definition": part.DEFINITION}
        for name, part in settings.metrics.items()
    }
    protocol = Protocol(recall_at=settings.recall_at, metrics=own, **_declared(selected, settings))
    extent = Extent(settings.map, settings.nmi, settings.class_means, settings.metrics, NEIGHBOURS)
    metrics, results = evaluate(sides, others, protocol, extent, counter)
    if settings.approximate is not None:
        of_index, results["approximate"] = evaluate_index(
            sides, protocol, settings.approximate, settings.approximate_sample
        )
        metrics |= of_index
    tables = {network: query_table(result) for network, result in results.items()}
    return Evaluation(metrics, protocol, tables, neighbour_table(results[SELECTED]), reduction)


def _landmarks(
    selected: Embeddings,
    others: dict[str, Sides],
    reduction: Reduction | None,
    ground_truth: pa.Table,
    settings: EvaluateSettings,
) -> Evaluation:
    if settings.metrics:
        raise UserError(
            "evaluate.metrics does not apply to a set whose ground truth is a table.",
            "Remove evaluate.metrics, or evaluate this data set in another run.",
        )
    protocol = LandmarkProtocol(**_declared(selected, settings))
    results = evaluate_landmarks(sides_of(selected), others, ground_truth, protocol)
    queries = {SELECTED: results.queries, **results.others}
    return Evaluation(results.metrics, protocol, queries, results.neighbours, reduction)


def _declared(selected: Embeddings, settings: EvaluateSettings) -> dict[str, Any]:
    """What both protocols declare."""
    reduction, normalisation = "none", Protocol.normalisation
    if settings.reduce is not None:
        reduction = f"reduced_*: to {settings.reduce.dim} dimensions, whitening {settings.reduce.whiten}"
    if selected.scales != (1.0,):
        listed = ", ".join(f"{scale:g}" for scale in selected.scales)
        normalisation += f", each of its image at scales {listed}"
    return {
        "split": "test",
        "confidence": settings.confidence,
        "seed": settings.seed,
        "reduction": reduction,
        "training_protocol": selected.training_protocol,
        "normalisation": normalisation,
    }


def evaluate_index(
    sides: Sides, protocol: Protocol, setting: Setting, sample: int
) -> tuple[dict[str, float | int | str], PerQuery]:
    """Builds the index of the gallery and gives its metrics and per-query results. A metric of an index is a
    metric of the network and the index together: it has its own protocol, which contains the setting.

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
