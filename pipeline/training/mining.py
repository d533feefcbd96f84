"""Tuples of an epoch: the hardest negatives for the network in its present state."""

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int, Int64
from torch import Tensor

from unseen.data.class_split import ClassSplit
from unseen.data.shards import Shards
from unseen.data.tuples import TupleSampler
from unseen.methods.settings import Recipe
from unseen.runtime.device.world import world_size
from unseen.runtime.errors import UserError
from unseen.training.row_embedder import RowEmbedder


def tuple_sampler(shards: Shards, split: ClassSplit, recipe: Recipe, seed: int) -> TupleSampler:
    """The sampler over the data set's pairs of training images.

    Raises UserError if it has none, or as TupleSampler.
    """
    if "pairs.parquet" not in shards.manifest.get("extras", {}):
        raise UserError(
            f"{shards.directory} has no table of matching pairs, from which batch.sampling: tuples draws "
            "queries and positives.",
            "Take the data set `landmarks`, or another sampling and loss.",
        )
    table = shards.extra("pairs").to_pydict()
    pairs = zip(table["split"], table["query"], table["positive"], strict=True)
    rows = np.array([pair for part, *pair in pairs if part == "train"], np.int64).reshape(-1, 2)
    if not np.isin(rows, split.rows).all():
        problem = f"{shards.directory}: pairs.parquet names images that are not for training."
        raise UserError(problem, "Ingest the data set again.")
    return TupleSampler(np.searchsorted(split.rows, rows), split.labels, recipe.batch, seed)


def mine(
    sampler: TupleSampler, epoch: int, embedder: RowEmbedder, rows: Int[np.ndarray, " n"]
) -> Int64[Tensor, "P K"]:
    """The tuples of an epoch as positions into `rows`, on the CPU, the same on every worker and for any
    number of them.

    Rank 0 ranks the embeddings and sends the tuples to the others.
    """
    plan, worker = sampler.plan(epoch), embedder.worker
    needed = np.unique(np.concatenate([plan.pairs[:, 0], plan.pool]))
    embeddings = embedder.embed(rows[needed], f"mine the tuples of epoch {epoch + 1}")
    tuples = torch.zeros(len(plan.pairs), sampler.batch.images_per_class, dtype=torch.int64)
    if worker.rank == 0:
        # pages of rows that are not needed stay unused
        placed = np.empty((len(rows), embeddings.shape[1]), np.float32)
        placed[needed] = embeddings.cpu().numpy()
        tuples = torch.from_numpy(sampler.tuples(plan, placed))
    if world_size() > 1:
        tuples = tuples.to(worker.device)
        dist.broadcast(tuples, src=0)
    return tuples.cpu()
