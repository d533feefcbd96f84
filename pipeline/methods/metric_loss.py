"""The metric-learning loss of a recipe: a pair loss with or without a cross-batch memory, a proxy loss, both,
SNCA, or the tuple loss."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.losses import settings as config
from unseen.losses.pairs import References
from unseen.methods import modules
from unseen.runtime.device.host import HostValue

_NAMES = {"pairs": "pair", "proxies": "proxy", "samples": "snca", "tuples": "tuple"}  # in files of weights


class MetricLoss(nn.Module):
    """The terms of a loss, under the names of its parts.

    A memory (Wang et al. 2020) contains the references of a pair loss. In training mode the batch first
    enters the memory (`observe`), so that the references include the batch; the loss excludes the pair of
    each anchor with itself by position. The memory starts to fill, and is used, after `start` calls in
    training mode. Its size is at least one batch; `share` is a share of the training images. With
    `with_batch` (released XBM code) its term is added to the loss of the batch. Otherwise (IRT eq. 1) it
    replaces that loss once the memory has started.
    """

    calls: Tensor

    def __init__(
        self,
        loss: config.LossSettings,
        memory: config.CrossBatchMemory | None,
        dim: int,
        batch: int,
        classes: int,
        samples: int,
    ) -> None:
        super().__init__()
        self.settings = memory
        self.pair: nn.Module | None = None
        self.proxy: nn.Module | None = None
        self.snca: nn.Module | None = None
        self.tuple: nn.Module | None = None
        self.terms: dict[str, str] = {}  # by inputs
        for part, weight in loss.parts:
            self.terms[part.inputs] = part.term
            built = modules.loss(part, classes=classes, dim=dim, samples=samples)
            setattr(self, _NAMES[part.inputs], built)
            if part.inputs == "proxies":
                self.proxy_weight = weight
        self.negatives = getattr(loss, "negatives", 0)  # of a tuple
        self.memory: Any = None
        if memory is not None:
            size = memory.size if memory.size is not None else round(memory.share * samples)
            self.memory = modules.load(memory.module)(max(size, batch), dim)
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self._calls = HostValue()

    def forward(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        samples: Int[Tensor, "B"],
        references: References | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted terms of unit vectors. Every call returns the same terms. references: the result of
        `observe` for this batch."""
        terms: dict[str, Tensor] = {}
        if self.pair is not None:
            memory_loss = self._memory_loss(embeddings, labels, references)
            with_batch = self.settings is None or self.settings.with_batch
            if memory_loss is None or with_batch:
                terms[self.terms["pairs"]] = self.pair(embeddings, labels)
            else:
                terms[self.terms["pairs"]] = memory_loss
            if self.settings is not None and self.settings.with_batch:
                terms["memory"] = embeddings.new_zeros(()) if memory_loss is None else memory_loss
        if self.proxy is not None:
            terms[self.terms["proxies"]] = self.proxy_weight * self.proxy(embeddings, labels)
        if self.snca is not None:
            terms[self.terms["samples"]] = self.snca(embeddings, labels, samples)
        if self.tuple is not None:
            # The rows of a tuple are query, positive, negatives.
            tuples = embeddings.unflatten(0, (-1, 2 + self.negatives))
            terms[self.terms["tuples"]] = self.tuple(tuples[:, 0], tuples[:, 1], tuples[:, 2:])
        return terms

    def proxies(self) -> Sequence[nn.Parameter]:
        return [] if self.proxy is None else list(self.proxy.parameters())

    def observe(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        keys: Float[Tensor, "B D"] | None = None,
    ) -> References | None:
        """Enters a batch into the memory and returns the contents; None without a memory, before it starts,
        and in eval mode. keys: vectors to store instead of the embeddings."""
        if self.memory is None or self.settings is None or not self.training:
            return None
        calls = self._calls.read(self.calls) + 1
        self._calls.write(self.calls, calls)
        if calls <= self.settings.start:
            return None
        positions = self.memory.enqueue(embeddings if keys is None else keys, labels)
        vectors, reference_labels = self.memory.valid()
        is_full = len(vectors) == len(self.memory.embeddings)
        return References(vectors, reference_labels, positions, is_full)

    def _memory_loss(
        self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"], references: References | None
    ) -> Float[Tensor, ""] | None:
        """The weighted loss against the memory; None without references."""
        if references is None or self.settings is None or self.pair is None:
            return None
        loss: Tensor = self.pair(
            embeddings, labels, references.vectors, references.labels, references.self_index
        )
        return self.settings.weight * loss


class Objective(nn.Module):
    """The sum of the terms of a metric loss, for code without a training."""

    def __init__(self, loss: MetricLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors. In training mode the batch first enters the memory."""
        samples = torch.arange(len(labels), device=labels.device)
        references = self.loss.observe(embeddings, labels)
        return torch.stack([*self.loss(embeddings, labels, samples, references).values()]).sum()
