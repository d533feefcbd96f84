"""Embeddings of images by the network in its present state, on all workers together."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from unseen.data.loader import EvalLoader
from unseen.data.shards import Shards
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.device.world import world_size
from unseen.runtime.progress import Progress
from unseen.training.embed import embed_rows
from unseen.training.gather import gather_rows
from unseen.training.precision import autocast
from unseen.training.step import to_pixels
from unseen.training.worker import Worker

BATCH = 128  # images at once; no gradient, so it is smaller than a training batch in memory


@dataclass(frozen=True)
class RowEmbedder:
    """Embeds rows of a data set without augmentation, in evaluation mode.

    Leaves `method` in training mode.
    """

    method: Method
    shards: Shards
    recipe: Recipe
    worker: Worker

    def embed(self, rows: Int[np.ndarray, " v"], label: str | None = None) -> Float[Tensor, "v D"]:
        """The embeddings of `rows` in their order, float32, on every worker.

        Each worker embeds a share in whole batches, the batches of one worker, so that the bits are the same
        for any number of workers. `label`: rank 0 shows the progress of its share.
        """
        # The longest share of a worker. Shorter ones end with zeros, which are cut off after the gather.
        longest = math.ceil(math.ceil(len(rows) / BATCH) / world_size()) * BATCH
        share = rows[self.worker.rank * longest : (self.worker.rank + 1) * longest]
        device, embeddings = self.worker.device, torch.zeros(longest, self.method.dim)
        threads, pinned = self.worker.loader_threads, device.type == "cuda"
        loader = EvalLoader(self.shards, share, self.recipe.input, BATCH, threads, pinned)
        self.method.eval()
        with Progress(label if self.worker.rank == 0 else None, len(share), "images") as progress:
            for embedded in embed_rows(self._vectors, loader, device, progress):
                embeddings[: len(share)] = torch.from_numpy(embedded)
        self.method.train()
        return gather_rows(embeddings.to(device))[: len(rows)]

    def _vectors(self, images: Tensor) -> tuple[Float[Tensor, "b D"]]:
        with autocast(self.recipe, self.worker.device):
            return (self.method.embed(to_pixels(images, self.method, self.recipe)).float(),)
