"""The metric-learning loss of a recipe: a pair loss, alone or with a cross-batch memory behind it, a proxy
loss, both, SNCA, or that of tuples."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pipeline.config import losses as config
from pipeline.methods.modules import load, pair_loss, proxy_loss


class MetricLoss(nn.Module):
    """The terms of a loss, under the names of its parts.

    A memory (Wang et al. 2020) is the second set of a pair loss. In training mode the batch enters it first,
    so that its own images are among the references; each anchor is kept from itself by position. It takes
    part, and begins to fill, after `start` calls in training mode; it holds at least one batch, and `share`
    is a share of the training images. With the batch, as in the released XBM code, its term stands beside the
    loss of the batch; without it (IRT eq. 1) it takes the place of that loss once it has started.
    """

    calls: Tensor

    def __init__(
        self,
        loss: config.Loss,
        memory: config.CrossBatchMemory | None,
        dim: int,
        batch: int,
        classes: int,
        samples: int,
    ) -> None:
        super().__init__()
        self.name, self.settings = loss.name, memory
        self.pair: nn.Module | None = None
        self.proxy: nn.Module | None = None
        self.snca: nn.Module | None = None
        self.tuple: nn.Module | None = None
        self.proxy_name, self.proxy_weight = loss.name, 1.0
        if isinstance(loss, config.SncaLoss):
            self.snca = load(loss.module)(samples, dim, loss.temperature, loss.momentum)
        elif isinstance(loss, config.TupleContrastiveLoss):
            self.tuple, self.negatives = load(loss.module)(loss.margin), loss.negatives
        elif isinstance(loss, config.HybridLoss):
            self.name, self.proxy_name, self.proxy_weight = loss.pair.name, loss.proxy.name, loss.proxy_weight
            self.pair, self.proxy = pair_loss(loss.pair), proxy_loss(loss.proxy, classes, dim)
        elif isinstance(loss, config.AnyProxyLoss):
            self.proxy = proxy_loss(loss, classes, dim)
        else:
            self.pair = pair_loss(loss)
        self.memory: Any = None
        if memory is not None:
            size = memory.size if memory.size is not None else round(memory.share * samples)
            self.memory = load(memory.module)(max(size, batch), dim)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        samples: Int[Tensor, "B"],
        keys: Float[Tensor, "B D"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted terms of unit vectors, always the same ones. keys: what enters the memory in place of
        the embeddings."""
        terms: dict[str, Tensor] = {}
        if self.pair is not None:
            memory = self._against_memory(embeddings, labels, embeddings if keys is None else keys)
            beside = self.settings is None or self.settings.with_batch
            terms[self.name] = self.pair(embeddings, labels) if memory is None or beside else memory
            if self.settings is not None and self.settings.with_batch:
                terms["memory"] = embeddings.new_zeros(()) if memory is None else memory
        if self.proxy is not None:
            terms[self.proxy_name] = self.proxy_weight * self.proxy(embeddings, labels)
        if self.snca is not None:
            terms[self.name] = self.snca(embeddings, labels, samples)
        if self.tuple is not None:
            tuples = embeddings.unflatten(
                0, (-1, 2 + self.negatives)
            )  # tuple by tuple: query, positive, negatives
            terms[self.name] = self.tuple(tuples[:, 0], tuples[:, 1], tuples[:, 2:])
        return terms

    def proxies(self) -> Sequence[nn.Parameter]:
        return [] if self.proxy is None else list(self.proxy.parameters())

    def _against_memory(
        self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], keys: Float[Tensor, "B D"]
    ) -> Float[Tensor, ""] | None:
        """The weighted loss against the memory; None without a memory, before it starts, and in eval mode."""
        if self.memory is None or self.settings is None or self.pair is None or not self.training:
            return None
        self.calls += 1
        if self.calls <= self.settings.start:
            return None
        places = self.memory.enqueue(keys, labels)
        references, reference_labels = self.memory.valid()
        loss: Tensor = self.pair(embeddings, labels, references, reference_labels, places)
        return self.settings.weight * loss
