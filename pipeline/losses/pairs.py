"""The two sides of a pair loss: anchors of the batch against references, which are the batch itself or a memory."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pipeline.losses.precision import full_precision, without_autocast


class Pairs(NamedTuple):
    """Anchors (B, D) against references (S, D); anchor i itself is reference `self_index[i]`, or none where `self_index` is None."""

    anchors: Float[Tensor, "B D"]
    labels: Int[Tensor, "B"]
    references: Float[Tensor, "S D"]
    reference_labels: Int[Tensor, "S"]
    self_index: Int[Tensor, "B"] | None


class PairLoss(nn.Module, ABC):
    """A loss of a batch against itself or against references, in single precision at least. A subclass says what pairs cost."""

    def forward(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        references: Float[Tensor, "S D"] | None = None,
        reference_labels: Int[Tensor, "S"] | None = None,
        self_index: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of unit vectors. Without references the batch is its own.

        self_index: which reference an anchor is itself, so that it is never its own positive, whatever the rounding of its norm.
        Raises ValueError when only one of references and their labels is given, or a self index without references.
        """
        with without_autocast(embeddings):
            return self.cost(_pairs_of(embeddings, labels, references, reference_labels, self_index))

    @abstractmethod
    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        """The loss of the anchors against the references; 0 where no pair costs anything."""


def _pairs_of(
    embeddings: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    references: Float[Tensor, "S D"] | None,
    reference_labels: Int[Tensor, "S"] | None,
    self_index: Int[Tensor, "B"] | None,
) -> Pairs:
    """Both sides in one precision. Without references the batch is compared with itself, each anchor excluded against itself by index."""
    anchors = full_precision(embeddings)
    if (references is None) != (reference_labels is None):
        raise ValueError("references and reference_labels go together: got only one of them")
    if references is None or reference_labels is None:
        if self_index is not None:
            raise ValueError("self_index points into references, but no references are given")
        return Pairs(anchors, labels, anchors, labels, torch.arange(len(labels), device=labels.device))
    return Pairs(anchors, labels, references.to(anchors.dtype), reference_labels, self_index)


def relatives_of(pairs: Pairs, step: int) -> tuple[Int[Tensor, "R"], list[int]]:
    """The references whose class is in the batch, ascending, and where each block of `step` references begins among them.

    Of a memory they are few, so that positives are looked for among them alone; of the batch itself they are all.
    """
    size = len(pairs.references)
    if pairs.references is pairs.anchors:
        return torch.arange(size, device=pairs.labels.device), [*range(0, size, step), size]
    known = pairs.labels.sort().values
    found = torch.searchsorted(known, pairs.reference_labels).clamp_(max=len(known) - 1)
    relatives = (known[found] == pairs.reference_labels).nonzero().squeeze(1)
    starts = torch.arange(0, size + step, step, device=relatives.device)
    return relatives, torch.searchsorted(relatives, starts).tolist()
