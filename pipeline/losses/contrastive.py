"""Contrastive loss on cosines, against the batch or a memory of any size (IRT eq. 1; Wang et al. 2020).

    loss = 1/B sum_i [ sum_{p: y_p = y_i, p != i} (1 - s_ip) + sum_{n: y_n != y_i} [s_in - margin]_+ ]

Sums, not means, over the pairs of an anchor. The released XBM code adds s_in where this adds s_in - margin: the same gradient, another value.
An anchor is excluded against itself by index; in the papers' codes by a similarity of 1, which drops duplicates as well: they cost nothing
here either, and their gradient along the sphere is zero.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from pipeline.losses.pairs import PairLoss, Pairs, relatives_of

_CPU_ELEMENTS = 1 << 18  # similarities held at a time: what stays in a core's cache
_GPU_ELEMENTS = 1 << 26  # or what fills a GPU


class Contrastive(PairLoss):
    """margin: the cosine below which a negative costs nothing. Memory: similarities to a few thousand references at a time, never (B, S)."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        return _Blocked.apply(pairs.anchors, pairs.references, pairs, self.margin)


class _Blocked(torch.autograd.Function):
    """Value and gradient in one sweep over blocks of references: a pair's weight dloss/ds is -1, 0 or 1 and known at once."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, margin: float) -> Tensor:
        to_anchors, to_references = ctx.needs_input_grad[:2]
        anchor_gradient = torch.zeros_like(anchors) if to_anchors else None
        reference_gradient = torch.zeros_like(references) if to_references else None
        total = anchors.new_zeros(())
        batch, size = len(anchors), len(references)
        on_cpu = anchors.device.type == "cpu"
        step = max(1, (_CPU_ELEMENTS if on_cpu else _GPU_ELEMENTS) // max(batch, 1))
        relatives, bounds = relatives_of(pairs, step)
        buffer = anchors.new_empty(batch * min(step, size))
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            beside = references[columns]
            excess = torch.mm(anchors, beside.T, out=buffer[: batch * len(beside)].view(batch, len(beside)))
            family = relatives[bounds[block] : bounds[block + 1]]
            if len(family):
                value, weights = _positives(pairs, family, excess, start, margin)
                total += value
                if anchor_gradient is not None:
                    anchor_gradient.addmm_(weights, references[family])
                if reference_gradient is not None:
                    reference_gradient.index_add_(0, family, weights.T @ anchors)
            value = excess.sub_(margin).clamp_(min=0).sum()
            total += value
            if on_cpu and value == 0:  # on a GPU the answer would cost more than the products it saves
                continue
            weights = excess.sign_()
            if anchor_gradient is not None:
                anchor_gradient.addmm_(weights, beside)
            if reference_gradient is not None:
                reference_gradient[columns].addmm_(weights.T, anchors)
        saved = (anchor_gradient, reference_gradient)
        ctx.save_for_backward(*(None if gradient is None else gradient.div_(batch) for gradient in saved))
        return total / max(batch, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if saved is None else saved * gradient for saved in ctx.saved_tensors), None, None


def _positives(pairs: Pairs, family: Tensor, similarity: Tensor, start: int, margin: float) -> tuple[Tensor, Tensor]:
    """The sum of 1 - s over the positives among the references `family`, and dloss/ds there.

    Lowers the positives (and self pairs) in `similarity`, whose columns begin at reference `start`, to the margin: they cost nothing as negatives.
    """
    near = similarity.index_select(1, family - start)
    same = torch.eq(pairs.labels[:, None], pairs.reference_labels[family], out=torch.empty_like(near))
    similarity.index_copy_(1, family - start, torch.lerp(near, torch.full_like(near, margin), same))
    if pairs.self_index is not None:
        same.mul_(torch.ne(pairs.self_index[:, None], family, out=torch.empty_like(near)))
    return near.neg_().add_(1).mul_(same).sum(), same.neg_()
