"""Multi-similarity loss with its pair mining (Wang et al. 2019).

    loss = 1/B sum_i [ 1/alpha log(1 + sum_{p in P_i} exp(-alpha (s_ip - lambda)))
                     + 1/beta  log(1 + sum_{n in N_i} exp(  beta (s_in - lambda))) ]

s is the cosine. Mining with margin epsilon keeps the pairs that are hard compared with the hardest pair of
the other side:

    N_i = { n : s_in + epsilon > min_p s_ip }      P_i = { p : s_ip - epsilon < max_n s_in }

with minimum and maximum over the sets before mining. Pairs with s >= 1 - 1e-5 (the image itself, exact
duplicates) are excluded from the positives. Definition and constants are those of the authors' released code.
It divides by all B anchors; anchors without a mined pair count as zero.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.blocked import Blocked, block_size, start_gradients
from unseen.losses.pairs import PairLoss, Pairs

_DUPLICATE = 1 - 1e-5  # a positive with at least this similarity is the same picture (released code)
_CPU_ELEMENTS = 1 << 18  # similarities in memory at a time, so that they stay in the cache of a core
_ROWS = 16  # least number of anchors at a time, because each block reads the whole memory
_LOG_2 = math.log(2)
_SAFE = 60.0  # largest exponent whose power fits float32, also summed over thousands of terms
_FAR = 1e4  # added to or subtracted from a similarity, so that no minimum or maximum selects the pair


class MultiSimilarity(PairLoss):
    """alpha, beta: sharpness for positives and negatives. threshold: lambda, a cosine.

    mining_margin: epsilon, a cosine; None uses all pairs.
    """

    def __init__(self, alpha: float, beta: float, threshold: float, mining_margin: float | None) -> None:
        super().__init__()
        self.alpha, self.beta = alpha, beta
        self.threshold, self.mining_margin = threshold, mining_margin

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        return _Blocked.apply(pairs.anchors, pairs.second, pairs, self)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of anchors: the sums of a row give its weights dloss/ds."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, loss: MultiSimilarity) -> Tensor:
        anchor_gradient, reference_gradient = start_gradients(ctx, anchors, references)
        total = anchors.new_zeros(())
        batch, size = len(anchors), len(references)
        step = max(_ROWS, block_size(anchors, size, _CPU_ELEMENTS))
        for start in range(0, batch if size else 0, step):
            rows = slice(start, start + step)
            value, weights = _rows(pairs, rows, loss, with_weights=any(ctx.needs_input_grad))
            total += value
            if weights is not None:
                weights /= batch
                if anchor_gradient is not None:
                    torch.mm(weights, references, out=anchor_gradient[rows])
                if reference_gradient is not None:
                    reference_gradient.addmm_(weights.T, anchors[rows])
        ctx.save_for_backward(anchor_gradient, reference_gradient)
        return total / max(batch, 1)


def _rows(
    pairs: Pairs, rows: slice, loss: MultiSimilarity, with_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """The sum of the losses of a block of anchors, and dloss/ds of each of its pairs.

    Sets are masks of 0 and 1 in the dtype of the similarities, because boolean masks are slow on a CPU.
    """
    similarity = pairs.anchors[rows] @ pairs.references.T
    same = torch.eq(pairs.labels[rows, None], pairs.reference_labels, out=torch.empty_like(similarity))
    positive = torch.lt(similarity, _DUPLICATE, out=torch.empty_like(similarity)).mul_(same)
    if pairs.self_index is not None:
        positive.scatter_(1, pairs.self_index[rows, None], 0)
    negative = 1 - same
    if loss.mining_margin is not None:
        hardest_positive = torch.add(similarity, 1 - positive, alpha=_FAR).amin(1, keepdim=True)
        hardest_negative = torch.add(similarity, same, alpha=-_FAR).amax(1, keepdim=True)
        highest, lowest = hardest_negative + loss.mining_margin, hardest_positive - loss.mining_margin
        positive.mul_(torch.lt(similarity, highest, out=torch.empty_like(similarity)))
        negative.mul_(torch.gt(similarity, lowest, out=torch.empty_like(similarity)))
    positive_value, positive_weight = _log_one_plus_sum(similarity, positive, -loss.alpha, loss.threshold)
    negative_value, negative_weight = _log_one_plus_sum(similarity, negative, loss.beta, loss.threshold)
    value = positive_value.sum() / loss.alpha + negative_value.sum() / loss.beta
    return value, negative_weight.sub_(positive_weight) if with_weights else None


def _log_one_plus_sum(
    similarity: Float[Tensor, "rows columns"],
    member: Float[Tensor, "rows columns"],
    slope: float,
    threshold: float,
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows columns"]]:
    """v_i = log(1 + sum_j m_ij exp(slope (s_ij - threshold))) of each row, and dv_i/ds_ij / slope.

    The latter are the weights m_ij exp(...) / (1 + sum). similarity: cosines. member: m, 0 or 1. No slope
    overflows.
    """
    # Powers of two, because torch's exp is slow for tiny results and its exp2 is not.
    exponent = torch.mul(similarity, slope / _LOG_2).sub_(slope * threshold / _LOG_2)
    if abs(slope) - slope * threshold <= _SAFE:  # true for all published constants
        powers = exponent.clamp_(-115, 115).exp2_().mul_(member)
        total = powers.sum(1, keepdim=True)
        return torch.log1p(total), powers.div_(total.add_(1))
    # The largest exponent of a member, at least 0.
    shift = torch.add(exponent, 1 - member, alpha=-1e30).amax(1, keepdim=True).clamp_(min=0)
    powers = exponent.sub_(shift).clamp_(-115, 0).exp2_().mul_(member)
    above = torch.expm1(shift * -_LOG_2).add_(powers.sum(1, keepdim=True))  # (1 + sum) 2^-shift - 1
    return torch.log1p(above).add_(shift, alpha=_LOG_2), powers.div_(above.add_(1))
