"""Cross-batch memory: embeddings of earlier batches as references of a pair loss (Wang et al. 2020).

A ring of the latest S samples. The batch enters before the loss is taken, as in the released code, so that an anchor meets itself in the memory;
`enqueue` says where, for the loss to leave that pair out. An empty place has label -1 (the released code's 0 is a class).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class CrossBatchMemory(nn.Module):
    """`size` places for embeddings of dimension `dim`. All of its state is in the state dict: a restored memory goes on where it stopped."""

    of_training = True  # no embedding depends on it: not part of a saved model
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
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))  # the place that is written next
        self.register_buffer("filled", torch.zeros((), dtype=torch.int64))  # places in use, the first ones

    @torch.no_grad()
    def enqueue(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
        """Writes the global batch over the oldest places and returns the places it took, which are positions in `valid()` too.

        Raises ValueError when the batch does not fit: it would overwrite itself.
        """
        size, batch = len(self.labels), len(labels)
        if batch > size:
            raise ValueError(f"a cross-batch memory of {size} places cannot hold a batch of {batch}: make it at least as large as the batch")
        places = (self.pointer + torch.arange(batch, device=self.pointer.device)) % size
        self.embeddings[places] = embeddings.detach().to(self.embeddings.dtype)
        self.labels[places] = labels.to(self.labels.dtype)
        self.pointer.copy_((self.pointer + batch) % size)
        self.filled.copy_((self.filled + batch).clamp(max=size))
        return places

    def valid(self) -> tuple[Float[Tensor, "S D"], Int[Tensor, "S"]]:
        """The places in use: embeddings without gradient, and labels. Views, which the next `enqueue` overwrites."""
        filled = int(self.filled)
        return self.embeddings[:filled], self.labels[:filled]
