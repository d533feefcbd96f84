"""Contrastive loss on Euclidean distances with two margins.

(Hadsell et al. 2006; "C2" of Musgrave et al. 2020, GSP and its baselines.)

    loss = mean over { (i, p) : t_ip > 0 } of t_ip + mean over { (i, n) : t_in > 0 } of t_in
    t_ip = [ d_ip - positive_margin ]_+      t_in = [ negative_margin - d_in ]_+
    d = || z_i - z_j ||, not squared

Each side is averaged over its terms that are not zero, so that the average does not depend on the number of
easy pairs. A side without such a term is 0. The definition is that of GSP's released code and of
pytorch-metric-learning's ContrastiveLoss, which agree. Deviation: there the rounding error of a duplicate
counts as a positive distance; here the distance is exactly 0 and costs nothing (positive_margin >= 0).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.blocked import Blocked, block_size
from unseen.losses.distances import euclidean, pull, squares
from unseen.losses.pairs import PairLoss, Pairs, relatives_of
from unseen.runtime.device.host import reads_wait

_CPU_ELEMENTS = 1 << 18  # distances in memory at a time, so that they stay in the cache of a core
_FAR = 1e4  # added to the distance of a pair that is not a negative, more than any margin


class EuclideanContrastive(PairLoss):
    """A positive costs nothing up to the distance positive_margin, a negative from negative_margin on.

    Memory: the distances to a few thousand references at a time instead of (B, S).
    """

    def __init__(self, positive_margin: float, negative_margin: float) -> None:
        super().__init__()
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        # Within a batch each pair occurs in both directions with equal gradients, so one of them is doubled.
        within_batch = pairs.references is pairs.anchors
        references = pairs.anchors.detach() if within_batch else pairs.references
        return _Blocked.apply(pairs.anchors, references, pairs, self.positive_margin, self.negative_margin)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of references.

    The number of terms of a side is known after the last block, so each side has its own sums.
    """

    @staticmethod
    def forward(
        ctx: Any,
        anchors: Tensor,
        references: Tensor,
        pairs: Pairs,
        positive_margin: float,
        negative_margin: float,
    ) -> Tensor:
        needed = ctx.needs_input_grad[:2]
        positives, negatives = _Side(pairs, needed), _Side(pairs, needed)
        size = len(references)
        step = block_size(anchors, len(anchors), _CPU_ELEMENTS)
        relatives, bounds = relatives_of(pairs, step)
        reference_squares = squares(references)
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            distance, inverse = euclidean(anchors, references[columns], reference_squares[columns])
            members = relatives[bounds[block] : bounds[block + 1]]
            if len(members):
                values = distance.index_select(1, members - start)
                labels = pairs.reference_labels[members]
                same = torch.eq(pairs.labels[:, None], labels, out=torch.empty_like(values))
                distance.index_copy_(1, members - start, torch.add(values, same, alpha=_FAR))
                if pairs.self_index is not None:
                    same.mul_(torch.ne(pairs.self_index[:, None], members, out=torch.empty_like(values)))
                terms = values.sub_(positive_margin).clamp_(min=0).mul_(same)
                positives.add(terms, inverse.index_select(1, members - start), members)
            negatives.add(distance.neg_().add_(negative_margin).clamp_(min=0), inverse.neg_(), columns)
        times = 2 if pairs.references is pairs.anchors else 1
        gradients = zip(positives.mean_gradients(), negatives.mean_gradients(), strict=True)
        ctx.save_for_backward(
            *(
                None if positive is None or negative is None else positive.add_(negative).mul_(times)
                for positive, negative in gradients
            )
        )
        return positives.mean() + negatives.mean()


class _Side:
    """The terms of all positives, or of all negatives: their sum, number and gradients.

    The number is that of the terms that are not zero.
    """

    def __init__(self, pairs: Pairs, needed: tuple[bool, ...]) -> None:
        self.pairs = pairs
        self.total = pairs.anchors.new_zeros((), dtype=torch.float64)
        self.count = torch.zeros_like(self.total)
        self.to_anchors, self.to_references = (
            torch.zeros_like(side) if need else None
            for side, need in zip((pairs.anchors, pairs.references), needed, strict=True)
        )

    def add(self, terms: Tensor, slopes: Tensor, columns: slice | Tensor) -> None:
        """Adds the terms (B, columns) of the pairs with these references.

        Overwrites `terms`. slopes: dt/dd / d of the terms that are not zero.
        """
        value = terms.sum()
        if not reads_wait(value) and value == 0:  # a wait would cost more than the products
            return
        self.total += value
        active = terms.sign_()
        self.count += active.sum()
        weights, vectors = active.mul_(slopes), self.pairs.references[columns]
        if self.to_anchors is not None:
            self.to_anchors += pull(weights, self.pairs.anchors, vectors)
        if self.to_references is not None:
            self.to_references[columns] += pull(weights.T, vectors, self.pairs.anchors)

    def mean(self) -> Tensor:
        return (self.total / self.count.clamp(min=1)).to(self.pairs.anchors.dtype)

    def mean_gradients(self) -> list[Tensor | None]:
        divisor = self.count.clamp(min=1).to(self.pairs.anchors.dtype)
        gradients = (self.to_anchors, self.to_references)
        return [None if gradient is None else gradient / divisor for gradient in gradients]
