"""Validation on what training never sees: a share of the *train* classes, a fold of them, or a part that the data set holds out itself (classes, but
for the token corpus, which is about unseen samples of seen classes).

Test classes play no part in training.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pipeline.config.methods import Recipe
from pipeline.config.parts import Fold
from pipeline.data.loader import EvalLoader
from pipeline.data.shards import Shards
from pipeline.evaluation.metrics import Rows, averages, per_query, quick_metrics
from pipeline.methods.method import Method
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress
from pipeline.studies.ensemble.scores import validation_classes
from pipeline.training.gather import gather_rows, world_size
from pipeline.training.rng import named_generator
from pipeline.training.step import mixed_precision, to_pixels

METRICS = ("recall_at_1", "map_at_r", "r_precision")
VALIDATION = "validation"  # group of train images that a data set holds out itself
BATCH = 128  # images at once; no gradient, so it is smaller than a training batch in memory


@dataclass(frozen=True)
class ClassSplit:
    """Rows of split `train`, divided by class. Training labels are 0 .. classes - 1 in the order of the data set's labels."""

    rows: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    classes: int
    validation_rows: Int[np.ndarray, " v"]
    validation_labels: Int[np.ndarray, " v"]


def hold_out(shards: Shards, recipe: Recipe, seed: int) -> ClassSplit:
    """What a training leaves out: what the data set itself has put aside for validation, else a share of the train classes; or a fold of them."""
    rows, training = shards.rows("train"), recipe.training
    labels, groups = shards.labels[rows], [shards.groups[row] for row in rows.tolist()]
    if recipe.batch.sampling == "tuples" or (training.fold is None and VALIDATION in groups):
        return split_groups(rows, labels, groups)
    return split_classes(rows, labels, training.validation_share, seed, training.fold)


def split_classes(rows: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], share: float, seed: int, fold: Fold | None = None) -> ClassSplit:
    """Holds out round(share * C) of the C classes among `labels` (one per row), drawn by the run's seed.

    With `fold` it holds out that model's block of the C classes in the order of their labels instead (MLRC; neither share nor seed play a part).
    Raises UserError unless two classes are left to train on and two held-out classes have the two images that a query and its answer need.
    """
    classes = np.unique(labels)
    if fold is not None and len(classes) < fold.folds:
        raise UserError(
            f"{len(classes)} train classes cannot be cut into {fold.folds} folds.",
            "Lower ensemble.folds, or bring images of more classes.",
        )
    if fold is None:
        held_out = named_generator(seed, "validation").permutation(classes)[: round(share * len(classes))]
        which, setting = f"training.validation_share = {share:g} of {len(classes)} train classes", "training.validation_share"
    else:
        held_out = classes[validation_classes(fold.model, len(classes), fold.folds)]
        which, setting = f"Model {fold.model} of {fold.folds} folds of {len(classes)} train classes", "ensemble.folds"
    kept = np.setdiff1d(classes, held_out)
    for_validation = np.isin(labels, held_out)
    usable = int((np.unique(labels[for_validation], return_counts=True)[1] >= 2).sum())
    if len(kept) < 2 or usable < 2:
        raise UserError(
            f"{which} leaves {len(kept)} to train on and holds out {len(held_out)}, "
            f"of which {usable} have two images or more; both sides need at least 2.",
            f"Change {setting}, or add classes or images to the data set.",
        )
    return _divided(rows, labels, for_validation)


def split_groups(rows: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], groups: Sequence[str | None]) -> ClassSplit:
    """Holds out the images that the data set itself puts into group `validation`. Raises UserError where it has no such group.

    Validation is retrieval among them, as everywhere: of the 3D models of SfM-120k a neighbour counts as right when it is of the same model, though
    it may show another side of it. The released code of that set chooses by its loss on tuples mined among the same models.
    """
    for_validation = np.array([group == VALIDATION for group in groups], bool)
    if not for_validation.any() or for_validation.all():
        raise UserError(
            f"Training on tuples holds out the train images of group `{VALIDATION}`: they are {int(for_validation.sum()):,} of {len(rows):,}.",
            "Take the data set `landmarks`, which says what is for validation, or another sampling and loss.",
        )
    return _divided(rows, labels, for_validation)


def _divided(rows: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], for_validation: Bool[np.ndarray, " N"]) -> ClassSplit:
    kept = np.unique(labels[~for_validation])
    return ClassSplit(
        rows=rows[~for_validation],
        labels=np.searchsorted(kept, labels[~for_validation]),
        classes=len(kept),
        validation_rows=rows[for_validation],
        validation_labels=labels[for_validation],
    )


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
