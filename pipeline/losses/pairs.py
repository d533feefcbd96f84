"""The two sides of a pair loss: anchors of the batch, and references, which are the batch or a memory."""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.runtime.device.host import reads_wait
from unseen.runtime.device.precision import full_precision, without_autocast


class Pairs(NamedTuple):
    """Anchors (B, D) and references (S, D).

    Anchor i is reference `self_index[i]`; None: it is not a reference.
    """

    anchors: Float[Tensor, "B D"]
    labels: Int[Tensor, "B"]
    references: Float[Tensor, "S D"]
    reference_labels: Int[Tensor, "S"]
    self_index: Int[Tensor, "B"] | None

    @property
    def second(self) -> Float[Tensor, "S D"]:
        """The references; within a batch a view of the anchors, because a compiled autograd.Function accepts
        no tensor twice."""
        within_batch = self.references is self.anchors
        return self.references.view_as(self.references) if within_batch else self.references


class PairLoss(nn.Module, ABC):
    """A loss of the pairs of a batch with itself or with references, in float32 at least.

    A subclass defines the cost of the pairs.
    """

    inputs = "pairs"

    def forward(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        references: Float[Tensor, "S D"] | None = None,
        reference_labels: Int[Tensor, "S"] | None = None,
        self_index: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, ""]:
        """The loss of unit vectors. Without references, the batch is used as references.

        self_index: the reference that is the anchor itself, which is excluded from its positives. Raises
        ValueError for references without labels, labels without references, and a self index without
        references.
        """
        with without_autocast(embeddings):
            return self.cost(_pairs_of(embeddings, labels, references, reference_labels, self_index))

    @abstractmethod
    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        """The loss of the pairs; 0 if no pair costs anything."""


def _pairs_of(
    embeddings: Float[Tensor, "B D"],
    labels: Int[Tensor, "B"],
    references: Float[Tensor, "S D"] | None,
    reference_labels: Int[Tensor, "S"] | None,
    self_index: Int[Tensor, "B"] | None,
) -> Pairs:
    """Both sides in the same precision. Without references, the batch is compared with itself."""
    anchors = full_precision(embeddings)
    if (references is None) != (reference_labels is None):
        raise ValueError("references and reference_labels must be given together, got only one of them")
    if references is None or reference_labels is None:
        if self_index is not None:
            raise ValueError("self_index requires references, got none")
        return Pairs(anchors, labels, anchors, labels, torch.arange(len(labels), device=labels.device))
    return Pairs(anchors, labels, references.to(anchors.dtype), reference_labels, self_index)


class References(NamedTuple):
    """References of a memory, among which batch anchor i is `self_index[i]`."""

    vectors: Float[Tensor, "S D"]
    labels: Int[Tensor, "S"]
    self_index: Int[Tensor, "B"]
    is_full: bool  # whether S remains the same in all later steps


def relatives_of(pairs: Pairs, step: int) -> tuple[Int[Tensor, "R"], list[int]]:
    """The references of classes in the batch, ascending, and the start of each block among them.

    A block has `step` references.

    Only these can be positives. In a memory they are few; in the batch itself they are all references. On a
    GPU all references are returned, because their number would have to be read from it.
    """
    size = len(pairs.references)
    if pairs.references is pairs.anchors or reads_wait(pairs.labels):
        return torch.arange(size, device=pairs.labels.device), [*range(0, size, step), size]
    labels = pairs.labels.sort().values
    places = torch.searchsorted(labels, pairs.reference_labels).clamp_(max=len(labels) - 1)
    relatives = (labels[places] == pairs.reference_labels).nonzero().squeeze(1)
    starts = torch.arange(0, size + step, step, device=relatives.device)
    return relatives, torch.searchsorted(relatives, starts).tolist()
