"""The evaluation of one run: all networks with exported embeddings, and all output files."""

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from unseen.data.embeddings import Embeddings, read
from unseen.evaluation.approximate import evaluate_index
from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.evaluate import NEIGHBOURS, Extent, evaluate
from unseen.evaluation.landmarks import LandmarkProtocol, evaluate_landmarks
from unseen.evaluation.protocol import Declared, Protocol
from unseen.evaluation.reduction import Reduction, apply, learned_reduction, save
from unseen.evaluation.settings import EvaluateSettings
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
