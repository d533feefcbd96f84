"""Cross-batch memory: embeddings of earlier batches as references of a pair loss (Wang et al. 2020).

The memory is a ring of the latest S samples. As in the released code, the batch is written before the loss is
computed, so each anchor is also a reference; `enqueue` returns its place, so that the loss can exclude this
pair. An empty place has label -1 (0 in the released code, which is a class).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.runtime.device.host import HostValue


class CrossBatchMemory(nn.Module):
    """`size` places for embeddings of `dim` dimensions. The state dict contains its whole state."""

    training_only = True  # embeddings do not depend on it, so a saved model does not contain it
    embeddings: Tensor
    labels: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a cross-batch memory needs at least one place, got {size}")
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), -1, dtype=torch.int64))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))  # next place to write
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))  # number of places in use
        self._filled = HostValue()

    @torch.no_grad()
    def enqueue(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """Writes the global batch over the oldest places and returns its positions in `valid()`.

        Raises ValueError for a batch that is larger than the memory.
        """
        size, batch = len(self.labels), len(labels)
        if batch > size:
            raise ValueError(f"a batch of {batch} does not fit a cross-batch memory of {size} places")
        places = (self.pointer + torch.arange(batch, device=self.pointer.device)) % size
        self.embeddings[places] = embeddings.detach().to(self.embeddings.dtype)
        self.labels[places] = labels.to(self.labels.dtype)
        self.pointer.copy_((self.pointer + batch) % size)
        self._filled.write(self.filled, min(self._filled.read(self.filled) + batch, size))
        return places

    def valid(self) -> tuple[Float[Tensor, "S D"], Int[Tensor, "S"]]:
        """Embeddings without gradient and labels of the places in use, as views that `enqueue` overwrites."""
        filled = self._filled.read(self.filled)
        return self.embeddings[:filled], self.labels[:filled]
