"""Embeddings -> metrics with intervals, and per-query results."""

import dataclasses
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.parquet as pq

from pipeline.config.inputs import EvaluateInputs, read_inputs
from pipeline.config.stages import Reduce
from pipeline.data.embeddings import Embeddings, read
from pipeline.evaluation.evaluate import SELECTED, Extent, Sides, evaluate
from pipeline.evaluation.index_metrics import evaluate_index
from pipeline.evaluation.landmarks import Judged, LandmarkProtocol, evaluate_landmarks
from pipeline.evaluation.metrics import PerQuery, Rows
from pipeline.evaluation.protocol import Protocol
from pipeline.evaluation.reduction import Reduction, apply, fit_pca, fit_whitening, save
from pipeline.evaluation.tables import file_of, write_neighbours, write_queries, write_table
from pipeline.index.approximate import Index
from pipeline.index.approximate import save as save_index
from pipeline.index.kinds import KINDS
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.stage import main

Declaration = TypeVar("Declaration", Protocol, LandmarkProtocol)


def run(dataset: str, method: str, seed: int) -> None:
    """Retrieval on the test classes, or on the benchmarks of a landmark set: the selected weights, the last ones, and the untrained network."""
    wanted = read_inputs(EvaluateInputs, "evaluate", dataset, method).settings.evaluate
    name = Path(dataset, method, str(seed))
    folder = Path("data/embeddings", name)
    selected, last, untrained = (read(folder / f"{file}.arrow") for file in ("test", "test-last", "test-untrained"))
    others = {"last": _sides(last), "untrained": _sides(untrained)}
    if (folder / "test-best.arrow").is_file():
        others["best_on_test"] = _sides(read(folder / "test-best.arrow"))
    reduction = None if wanted.reduce is None else _learned(wanted.reduce, folder)
    if reduction is not None:
        others["reduced"] = _sides(selected._replace(embedding=apply(reduction, selected.embedding)))
    said = "none" if wanted.reduce is None else f"reduced_*: to {wanted.reduce.dim} dimensions, whitening {wanted.reduce.whiten}"
    declared = (wanted.bootstrap, wanted.confidence, wanted.seed, said)
    index: Index | None = None
    protocol: LandmarkProtocol | Protocol
    judged: Judged | None = None
    results: dict[str, PerQuery] = {}
    if (folder / "ground_truth.parquet").is_file():
        protocol = _of_scales(LandmarkProtocol("test", *declared), selected.scales)
        judged = evaluate_landmarks(_sides(selected), others, pq.read_table(folder / "ground_truth.parquet"), protocol)
        metrics = judged.metrics
    else:
        protocol = _of_scales(Protocol("test", wanted.recall_at, *declared), selected.scales)
        metrics, results = evaluate(_sides(selected), others, protocol, Extent(wanted.map, wanted.nmi, wanted.class_means))
        if wanted.approximate is not None:
            setting = KINDS[wanted.approximate.kind](**wanted.approximate.model_dump(exclude={"kind"}))
            index, numbers, results["approximate"] = evaluate_index(_sides(selected), protocol, setting, wanted.approximate_sample)
            metrics |= numbers
    with atomic_directory(Path("data/evaluation", name)) as directory:
        if judged is not None:
            write_table(directory / "queries.parquet", judged.queries)
            write_table(directory / "neighbours.parquet", judged.neighbours)
            for network, table in judged.others.items():
                write_table(directory / file_of(network), table)
        else:
            write_neighbours(directory / "neighbours.parquet", results[SELECTED])
            for network, result in results.items():
                write_queries(directory / ("queries.parquet" if network == SELECTED else file_of(network)), result)
        if index is not None:
            save_index(directory / "index", index)
        if reduction is not None:
            save(directory / "reduction.safetensors", reduction)
        write_json(directory / "protocol.json", protocol.declaration())
    write_json(Path("data/metrics", dataset, method, f"{seed}.json"), metrics)


def _of_scales(protocol: Declaration, scales: tuple[float, ...]) -> Declaration:
    """The protocol of embeddings that look at each image at other scales than its own."""
    if scales == (1.0,):
        return protocol
    at = ", ".join(f"{scale:g}" for scale in scales)
    return dataclasses.replace(protocol, normalisation=f"{protocol.normalisation}, each of its image at scales {at}")


def _sides(rows: Embeddings) -> Sides:
    queries, gallery = (Rows(*(column if side.all() else column[side] for column in rows[:3])) for side in (rows.is_query, rows.is_gallery))
    return Sides(queries, gallery)


def _learned(wanted: Reduce, folder: Path) -> Reduction:
    """The reduction of the train images' embeddings in `folder`."""
    train = read(folder / "train.arrow")
    if wanted.whiten != "pairs":
        return fit_pca(train.embedding, wanted.dim, wanted.whiten == "pca")
    if not (folder / "pairs.parquet").is_file():
        raise UserError(f"{folder} has no table of matching images.", "Set evaluate.reduce.whiten to none or pca for a data set without pairs.")
    table = pq.read_table(folder / "pairs.parquet", filters=[("split", "=", "train")])
    pairs = np.stack([table[side].to_numpy() for side in ("query", "positive")], axis=1)
    return fit_whitening(train.embedding, np.searchsorted(train.row_id, pairs), wanted.dim)


if __name__ == "__main__":
    main(run, "dataset", "method", "seed")
