"""Validation: retrieval among the held-out images (pipeline/data/class_split.py).

Ranks are counted on the device of the training. A search by FAISS on a GPU would allocate memory of its own
there, beside that of torch.
"""

from functools import partial

import torch
import torch.distributed as dist

from unseen.data.class_split import ClassSplit
from unseen.evaluation.counted_gallery import NumpyGallery, TileCounter
from unseen.evaluation.metrics import Rows, averages, per_query, quick_metrics
from unseen.runtime.device.counted_gallery import TorchGallery
from unseen.runtime.device.world import world_size
from unseen.runtime.errors import UserError
from unseen.training.row_embedder import RowEmbedder

METRICS = ("recall_at_1", "map_at_r", "r_precision")


def validate(embedder: RowEmbedder, split: ClassSplit) -> dict[str, float]:
    """METRICS of retrieval among the held-out images, the same numbers on every worker.

    Rank 0 ranks and sends the numbers to the others: workers on different machines must not differ in the
    last digit, or they would stop at different steps.
    """
    embeddings, metrics = embedder.embed(split.validation_rows).cpu().numpy(), {}
    if embedder.worker.rank == 0:
        counter = _counter(embedder.worker.device)
        metrics = quick_metrics(embeddings, split.validation_labels, counter=counter)
    return _on_every_worker(metrics, embedder.worker.device)


def watch_test(embedder: RowEmbedder) -> dict[str, float]:
    """METRICS on the test classes, queries against gallery. Nothing is selected by them. As `validate`
    otherwise.

    Raises UserError for a set with a ground truth of its own, whose labels have no meaning, and for one
    without test images.
    """
    shards = embedder.shards
    rows = shards.rows("test")
    if "ground_truth.parquet" in shards.manifest.get("extras", {}) or not len(rows):
        raise UserError(
            f"training.watch_test needs class labels of test images, which {shards.directory} does not have.",
            "Set training.watch_test to false for this data set.",
        )
    embeddings = embedder.embed(rows).cpu().numpy()
    if embedder.worker.rank != 0:
        return _on_every_worker({}, embedder.worker.device)
    labels = shards.labels[rows]
    queries, gallery = (
        Rows(rows[side], labels[side], embeddings[side])
        for side in (shards.is_query[rows], shards.is_gallery[rows])
    )
    counter = _counter(embedder.worker.device)
    result = per_query(queries, gallery, (1,), counter=counter)
    return _on_every_worker(averages(result), embedder.worker.device)


def _counter(device: torch.device) -> TileCounter:
    return partial(TorchGallery, device=str(device)) if device.type == "cuda" else NumpyGallery


def _on_every_worker(metrics: dict[str, float], device: torch.device) -> dict[str, float]:
    """METRICS as rank 0 computed them; the others pass an empty dict."""
    values = torch.tensor([metrics[name] if metrics else 0.0 for name in METRICS], dtype=torch.float64)
    if world_size() > 1:
        values = values.to(device)
        dist.broadcast(values, src=0)
    return dict(zip(METRICS, values.tolist(), strict=True))
