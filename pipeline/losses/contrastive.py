"""Contrastive loss on cosines, against the batch or a memory of any size (IRT eq. 1; Wang et al. 2020).

    loss = 1/B sum_i [ sum_{p: y_p = y_i, p != i} (1 - s_ip) + sum_{n: y_n != y_i} [s_in - margin]_+ ]

The pairs of an anchor are summed, not averaged. Deviations: the released XBM code adds s_in instead of s_in -
margin, which changes the value but not the gradient. The pair of an anchor with itself is excluded by index;
the papers' codes exclude it by a similarity of 1, which also excludes duplicates. Duplicates cost nothing
here either, and their gradient along the sphere is zero.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.blocked import Blocked, block_size, divided, start_gradients
from unseen.losses.pairs import PairLoss, Pairs, relatives_of
from unseen.runtime.device.host import reads_wait

_CPU_ELEMENTS = 1 << 18  # similarities in memory at a time, so that they stay in the cache of a core


class Contrastive(PairLoss):
    """margin: the cosine below which a negative costs nothing.

    Memory: the similarities with a few thousand references at a time instead of (B, S).
    """

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        return _Blocked.apply(pairs.anchors, pairs.second, pairs, self.margin)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of references.

    The weight dloss/ds of a pair is -1, 0 or 1.
    """

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, margin: float) -> Tensor:
        anchor_gradient, reference_gradient = start_gradients(ctx, anchors, references)
        total = anchors.new_zeros(())
        batch, size = len(anchors), len(references)
        step = block_size(anchors, batch, _CPU_ELEMENTS)
        relatives, bounds = relatives_of(pairs, step)
        buffer = anchors.new_empty(batch * min(step, size))
        for block, start in enumerate(range(0, size, step)):
            columns = slice(start, start + step)
            vectors = references[columns]
            out = buffer[: batch * len(vectors)].view(batch, len(vectors))
            excess = torch.mm(anchors, vectors.T, out=out)
            members = relatives[bounds[block] : bounds[block + 1]]
            if len(members):
                value, weights = _positives(pairs, members, excess, start, margin)
                total += value
                if anchor_gradient is not None:
                    anchor_gradient.addmm_(weights, references[members])
                if reference_gradient is not None:
                    reference_gradient.index_add_(0, members, weights.T @ anchors)
            value = excess.sub_(margin).clamp_(min=0).sum()
            total += value
            if not reads_wait(value) and value == 0:  # a wait would cost more than the products
                continue
            weights = excess.sign_()
            if anchor_gradient is not None:
                anchor_gradient.addmm_(weights, vectors)
            if reference_gradient is not None:
                reference_gradient[columns].addmm_(weights.T, anchors)
        ctx.save_for_backward(*divided((anchor_gradient, reference_gradient), batch))
        return total / max(batch, 1)


def _positives(
    pairs: Pairs, members: Tensor, similarity: Tensor, start: int, margin: float
) -> tuple[Tensor, Tensor]:
    """The sum of 1 - s over the positives among the references `members`, and dloss/ds of these pairs.

    Sets the positives (and self pairs) in `similarity`, whose columns begin at reference `start`, to the
    margin, so that they cost nothing as negatives.
    """
    values = similarity.index_select(1, members - start)
    same = torch.eq(pairs.labels[:, None], pairs.reference_labels[members], out=torch.empty_like(values))
    similarity.index_copy_(1, members - start, torch.lerp(values, torch.full_like(values, margin), same))
    if pairs.self_index is not None:
        same.mul_(torch.ne(pairs.self_index[:, None], members, out=torch.empty_like(values)))
    return values.neg_().add_(1).mul_(same).sum(), same.neg_()
