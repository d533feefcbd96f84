"""Embeddings of images by the network in its present state, on all workers together."""

import contextlib
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
from unseen.runtime.device.transfer import HostToDevice
from unseen.runtime.device.world import world_size
from unseen.runtime.progress import Progress
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

    @torch.no_grad()
    def embed(self, rows: Int[np.ndarray, " v"], label: str | None = None) -> Float[Tensor, "v D"]:
        """The embeddings of `rows` in their order, float32, on every worker.

        Each worker embeds a share in whole batches, the batches of one worker, so that the bits are the same
        for any number of workers. `label`: rank 0 shows the progress of its share.
        """
        # The longest share of a worker. Shorter ones end with zeros, which are cut off after the gather.
        longest = math.ceil(math.ceil(len(rows) / BATCH) / world_size()) * BATCH
        share = rows[self.worker.rank * longest : (self.worker.rank + 1) * longest]
        embeddings = torch.zeros(longest, self.method.dim, device=self.worker.device)
        visible = label is not None and self.worker.rank == 0
        done = 0
        copied = HostToDevice(self.worker.device)
        self.method.eval()
        with Progress(str(label), len(share), "images") if visible else contextlib.nullcontext() as progress:
            for images, ids in EvalLoader(
                self.shards, share, self.recipe.input, BATCH, self.worker.loader_threads
            ):
                part = slice(done, done + len(ids))
                assert np.array_equal(ids.numpy(), share[part]), "the loader must keep the order of the rows"
                (there,) = copied(images)
                with autocast(self.recipe, self.worker.device):
                    pixels = to_pixels(there, self.method, self.recipe)
                    embeddings[part] = self.method.embed(pixels).float()
                done = part.stop
                if progress is not None:
                    progress.advance(len(ids))
        self.method.train()
        return gather_rows(embeddings)[: len(rows)]
