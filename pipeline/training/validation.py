"""Validation: retrieval among the held-out images (pipeline/data/class_split.py), which training never sees."""

import contextlib
import math

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from pipeline.config.methods import Recipe
from pipeline.data.class_split import ClassSplit
from pipeline.data.loader import EvalLoader
from pipeline.data.shards import Shards
from pipeline.evaluation.metrics import Rows, averages, per_query, quick_metrics
from pipeline.methods.method import Method
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress
from pipeline.training.gather import gather_rows, world_size
from pipeline.training.step import mixed_precision, to_pixels

METRICS = ("recall_at_1", "map_at_r", "r_precision")
BATCH = 128  # images at once; no gradient, so it is smaller than a training batch in memory


def validate(method: Method, shards: Shards, split: ClassSplit, recipe: Recipe, rank: int, device: torch.device, threads: int) -> dict[str, float]:
    """Retrieval among the held-out classes: METRICS, the same numbers on every worker. Leaves `method` in training mode.

    Each worker embeds a share of the rows. Rank 0 ranks them and tells the others: workers on unlike machines must not differ in the last
    digit and stop at different steps.
    """
    embeddings = _embedded(method, shards, split.validation_rows, recipe, rank, device, threads)
    return _on_every_worker(quick_metrics(embeddings, split.validation_labels) if rank == 0 else {}, device)


def watch_test(method: Method, shards: Shards, recipe: Recipe, rank: int, device: torch.device, threads: int) -> dict[str, float]:
    """METRICS on the test classes, queries against gallery: to be told apart from every number that a choice was made by. As `validate` otherwise.

    Raises UserError for a set with a ground truth of its own, whose labels say nothing, and for one without test images.
    """
    rows = shards.rows("test")
    if "ground_truth.parquet" in shards.manifest.get("extras", {}) or not len(rows):
        raise UserError(
            f"training.watch_test judges test images by their classes, and {shards.directory} has none that mean anything.",
            "Set training.watch_test to false for this data set.",
        )
    embeddings = _embedded(method, shards, rows, recipe, rank, device, threads)
    found: dict[str, float] = {}
    if rank == 0:
        queries, gallery = (
            Rows(rows[side], shards.labels[rows][side], embeddings[side]) for side in (shards.is_query[rows], shards.is_gallery[rows])
        )
        found = averages(per_query(queries, gallery, (1,)))
    return _on_every_worker(found, device)


def _embedded(
    method: Method, shards: Shards, rows: Int[np.ndarray, " v"], recipe: Recipe, rank: int, device: torch.device, threads: int
) -> Float[np.ndarray, "v D"]:
    method.eval()
    embeddings = embed_rows(method, shards, rows, recipe, rank, device, threads)
    method.train()
    return embeddings.cpu().numpy()


def _on_every_worker(found: dict[str, float], device: torch.device) -> dict[str, float]:
    """METRICS as rank 0 found them."""
    values = torch.zeros(len(METRICS), dtype=torch.float64)
    if found:
        values = torch.tensor([found[name] for name in METRICS], dtype=torch.float64)
    if world_size() > 1:
        values = values.to(device)
        dist.broadcast(values, src=0)
    return dict(zip(METRICS, values.tolist(), strict=True))


@torch.no_grad()
def embed_rows(
    method: Method,
    shards: Shards,
    rows: Int[np.ndarray, " v"],
    recipe: Recipe,
    rank: int,
    device: torch.device,
    threads: int,
    label: str | None = None,
) -> Float[Tensor, "v D"]:
    """The embeddings of `rows` in their order, float32, on every worker. Each embeds whole batches, those of one worker, to the same bits.

    label: shows the progress of rank 0 with its own share.
    """
    # All workers embed this many but the last ones, whose gap is filled with zeros and cut off.
    longest = math.ceil(math.ceil(len(rows) / BATCH) / world_size()) * BATCH
    own = rows[rank * longest : (rank + 1) * longest]
    embeddings = torch.zeros(longest, method.dim, device=device)
    done = 0
    with Progress(label, len(own), "images") if label is not None and rank == 0 else contextlib.nullcontext() as progress:
        for images, ids in EvalLoader(shards, own, recipe.input, BATCH, threads) if len(own) else ():
            assert np.array_equal(np.asarray(ids), own[done : done + len(ids)]), "the loader must keep the order of the rows"
            with mixed_precision(recipe.training.precision, device):
                embeddings[done : done + len(ids)] = method.embed(to_pixels(images, method, recipe)).float()
            done += len(ids)
            if progress is not None:
                progress.advance(len(ids))
    return gather_rows(embeddings)[: len(rows)]
