"""Contrastive loss on Euclidean distances with two margins (Hadsell et al. 2006; "C2" of Musgrave et al. 2020, GSP and its baselines).

    loss = mean over { (i, p) : t_ip > 0 } of t_ip + mean over { (i, n) : t_in > 0 } of t_in
    t_ip = [ d_ip - positive_margin ]_+      t_in = [ negative_margin - d_in ]_+      d = || z_i - z_j ||, not squared

Each side is averaged over its own terms that are not zero, so that easy pairs do not thin out the hard ones; a side without any is 0. Definition:
GSP's released code and pytorch-metric-learning's ContrastiveLoss, which agree. They count a duplicate's rounding error as a positive distance,
here it is exactly 0 and no term (positive_margin >= 0).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.losses.distances import euclidean, pull, squares
from pipeline.losses.pairs import PairLoss, Pairs, relatives_of

_CPU_ELEMENTS = 1 << 18  # distances held at a time: what stays in a core's cache
_GPU_ELEMENTS = 1 << 26  # or what fills a GPU
_FAR = 1e4  # added to the distance of a pair that is no negative: no margin reaches it


class EuclideanContrastive(PairLoss):
    """positive_margin: the distance up to which a positive costs nothing. negative_margin: that from which a negative costs nothing.

    Memory: distances to a few thousand references at a time, never (B, S).
    """

    def __init__(self, positive_margin: float, negative_margin: float) -> None:
        super().__init__()
        self.positive_margin, self.negative_margin = positive_margin, negative_margin

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        # within a batch a pair is met from either end and pulls both the same way: one gradient, twice
        ends = (pairs.anchors, pairs.references) if pairs.references is not pairs.anchors else (pairs.anchors, pairs.anchors.detach())
        return _Blocked.apply(*ends, pairs, self.positive_margin, self.negative_margin)


class _Blocked(torch.autograd.Function):
    """Value and gradient in one sweep over blocks of references. A side's divisor is known at the end, so each side keeps its own sums."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, positive_margin: float, negative_margin: float) -> Tensor:
        needed = ctx.needs_input_grad[:2]
        positives, negatives = _Side(pairs, needed), _Side(pairs, needed)
        ctx.times = 2 if pairs.references is pairs.anchors else 1
        size = len(references)
        step = max(1, (_CPU_ELEMENTS if anchors.device.type == "cpu" else _GPU_ELEMENTS) // max(len(anchors), 1))
        relatives, bounds = relatives_of(pairs, step)
        reference_squares = squares(references)
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            distance, inverse = euclidean(anchors, references[columns], reference_squares[columns])
            family = relatives[bounds[block] : bounds[block + 1]]
            if len(family):
                near = distance.index_select(1, family - start)
                same = torch.eq(pairs.labels[:, None], pairs.reference_labels[family], out=torch.empty_like(near))
                distance.index_copy_(1, family - start, torch.add(near, same, alpha=_FAR))
                if pairs.self_index is not None:
                    same.mul_(torch.ne(pairs.self_index[:, None], family, out=torch.empty_like(near)))
                terms = near.sub_(positive_margin).clamp_(min=0).mul_(same)
                positives.add(terms, inverse.index_select(1, family - start), family)
            negatives.add(distance.neg_().add_(negative_margin).clamp_(min=0), inverse.neg_(), columns)
        saved = zip(positives.mean_gradients(), negatives.mean_gradients(), strict=True)
        ctx.save_for_backward(*(None if one is None or other is None else one.add_(other) for one, other in saved))
        return positives.mean() + negatives.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if saved is None else saved * (ctx.times * gradient) for saved in ctx.saved_tensors), None, None, None


class _Side:
    """The terms of all positives, or of all negatives: their sum, how many are not zero, and the sum's gradients."""

    def __init__(self, pairs: Pairs, needed: tuple[bool, ...]) -> None:
        self.pairs = pairs
        self.total = pairs.anchors.new_zeros((), dtype=torch.float64)
        self.count = torch.zeros_like(self.total)
        self.to_anchors, self.to_references = (
            torch.zeros_like(side) if need else None for side, need in zip((pairs.anchors, pairs.references), needed, strict=True)
        )

    def add(self, terms: Tensor, slopes: Tensor, columns: slice | Tensor) -> None:
        """terms (B, columns): of the pairs with these references, overwritten. slopes: dt/dd / d where a term is not zero."""
        value = terms.sum()
        if value.device.type == "cpu" and value == 0:  # on a GPU the answer would cost more than the products it saves
            return
        self.total += value
        active = terms.sign_()
        self.count += active.sum()
        weights, beside = active.mul_(slopes), self.pairs.references[columns]
        if self.to_anchors is not None:
            self.to_anchors += pull(weights, self.pairs.anchors, beside)
        if self.to_references is not None:
            self.to_references[columns] += pull(weights.T, beside, self.pairs.anchors)

    def mean(self) -> Tensor:
        return (self.total / self.count.clamp(min=1)).to(self.pairs.anchors.dtype)

    def mean_gradients(self) -> list[Tensor | None]:
        divisor = self.count.clamp(min=1).to(self.pairs.anchors.dtype)
        return [None if gradient is None else gradient / divisor for gradient in (self.to_anchors, self.to_references)]
