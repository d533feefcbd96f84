"""Tuples of an epoch: the network as it is embeds the queries and the pool, every worker a share, and the hardest negatives are found among them."""

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Int, Int64
from torch import Tensor

from pipeline.config.methods import Recipe
from pipeline.data.shards import Shards
from pipeline.data.tuples import TupleSampler
from pipeline.methods.method import Method
from pipeline.runtime.errors import UserError
from pipeline.training.gather import world_size
from pipeline.training.validation import ClassSplit, embed_rows


def tuple_sampler(shards: Shards, split: ClassSplit, recipe: Recipe, seed: int) -> TupleSampler:
    """The sampler over the data set's pairs of training images. Raises UserError where it has none, or as TupleSampler does."""
    if "pairs.parquet" not in shards.manifest.get("extras", {}):
        raise UserError(
            f"{shards.directory} has no table of matching pairs, from which batch.sampling: tuples draws queries and positives.",
            "Take the data set `landmarks`, or another sampling and loss.",
        )
    table = shards.extra("pairs").to_pydict()
    rows = np.array([pair for part, *pair in zip(table["split"], table["query"], table["positive"], strict=True) if part == "train"], np.int64)
    rows = rows.reshape(-1, 2)
    if not np.isin(rows, split.rows).all():
        raise UserError(f"{shards.directory}: pairs.parquet names images that are not for training.", "Ingest the data set anew.")
    return TupleSampler(np.searchsorted(split.rows, rows), split.labels, recipe.batch, seed)


def mine(
    sampler: TupleSampler,
    epoch: int,
    method: Method,
    shards: Shards,
    rows: Int[np.ndarray, " n"],
    recipe: Recipe,
    rank: int,
    device: torch.device,
    threads: int,
) -> Int64[Tensor, "P K"]:
    """The tuples of an epoch as positions into `rows`, on the CPU, the same on every worker and for any number of them.

    Images are embedded without augmentation, in the batches in which one worker would embed them. Rank 0 ranks them and tells the others.
    `method` is left in training mode.
    """
    plan = sampler.plan(epoch)
    wanted = np.unique(np.concatenate([plan.pairs[:, 0], plan.pool]))
    method.eval()
    embeddings = embed_rows(method, shards, rows[wanted], recipe, rank, device, threads, f"mine the tuples of epoch {epoch + 1}")
    method.train()
    tuples = torch.zeros(len(plan.pairs), sampler.batch.images_per_class, dtype=torch.int64)
    if rank == 0:
        placed = np.empty((len(rows), embeddings.shape[1]), np.float32)  # untouched pages of rows that are not looked at cost nothing
        placed[wanted] = embeddings.cpu().numpy()
        tuples = torch.from_numpy(sampler.tuples(plan, placed))
    if world_size() > 1:
        tuples = tuples.to(device)
        dist.broadcast(tuples, src=0)
    return tuples.cpu()
