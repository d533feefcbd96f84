"""Triplet loss on Euclidean distances (Weinberger and Saul 2009; Schroff et al. 2015).

    loss = mean over { (i, p, n) : t_ipn > 0 } of t_ipn
    t_ipn = [ d_ip - d_in + margin ]_+        d = || z_i - z_j ||, not squared

Mining: "all" uses every triplet (GSP's code); "semihard" uses those whose negative is farther than the
positive, d_ip < d_in < d_ip + margin (the baseline of the Proxy-Anchor code). Both equal
pytorch-metric-learning's TripletMarginLoss, without and with its TripletMarginMiner.

Triplets are counted, not listed. With the P distances of the positives of an anchor sorted, the positives
that form a triplet with a negative are consecutive, and bisection finds their ends. The loss is linear in the
distances, with numbers of triplets as weights:

    sum of t = sum_p #(p) d_ip - sum_n #(n) d_in + margin #

This takes B x S log P steps and a few blocks of rows in memory, for B x P x S triplets.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.blocked import Blocked, block_size, divided, start_gradients
from unseen.losses.distances import euclidean, pull, squares
from unseen.losses.pairs import PairLoss, Pairs
from unseen.runtime.device.host import reads_wait

_CPU_ELEMENTS = 1 << 18  # distances in memory at a time, so that they stay in the cache of a core
_GPU_ELEMENTS = 1 << 25  # enough to fill a GPU
_ROWS = 16  # least number of anchors at a time, because each block reads the whole memory
MININGS = ("all", "semihard")


class Triplet(PairLoss):
    """margin: a distance. mining: one of MININGS."""

    def __init__(self, margin: float, mining: str) -> None:
        super().__init__()
        if mining not in MININGS:
            raise ValueError(f"mining must be one of {', '.join(MININGS)}, got {mining!r}")
        if mining == "semihard" and margin <= 0:
            raise ValueError(f"mining semihard requires a positive margin, got {margin}")
        self.margin, self.mining = margin, mining

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        return _Blocked.apply(pairs.anchors, pairs.second, pairs, self.margin, self.mining == "semihard")


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of anchors, divided by the number of triplets at the end."""

    @staticmethod
    def forward(
        ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, margin: float, semihard: bool
    ) -> Tensor:
        anchor_gradient, reference_gradient = start_gradients(ctx, anchors, references)
        total = anchors.new_zeros((), dtype=torch.float64)
        count = torch.zeros_like(total)
        reference_squares = squares(references)
        step = max(_ROWS, block_size(anchors, len(references), _CPU_ELEMENTS, _GPU_ELEMENTS))
        for start in range(0, len(anchors), step):
            rows = slice(start, start + step)
            distance, inverse = euclidean(anchors[rows], references, reference_squares)
            weights, triplets = _triplets(pairs, rows, distance, margin, semihard)
            total += (distance.mul_(weights).sum(1).double() + margin * triplets).sum()
            count += triplets.sum()
            weights.mul_(inverse)
            if anchor_gradient is not None:
                anchor_gradient[rows] = pull(weights, anchors[rows], references)
            if reference_gradient is not None:
                reference_gradient += pull(weights.T, references, anchors[rows])
        count.clamp_(min=1)
        ctx.save_for_backward(*divided((anchor_gradient, reference_gradient), count.to(anchors.dtype)))
        return (total / count).to(anchors.dtype)


def _triplets(
    pairs: Pairs, rows: slice, distance: Tensor, margin: float, semihard: bool
) -> tuple[Tensor, Tensor]:
    """The weight of each pair, and the number of triplets of each anchor in float64.

    The weight is the number of triplets with the pair as the positive, minus those with the pair as the
    negative.
    """
    same = pairs.labels[rows, None] == pairs.reference_labels
    negative = torch.logical_not(same).to(distance.dtype)
    positive = same if pairs.self_index is None else same.scatter_(1, pairs.self_index[rows, None], False)
    if reads_wait(distance):
        return _dense(distance, positive, negative, margin, semihard)
    anchor, place = positive.nonzero(as_tuple=True)
    positives = torch.bincount(anchor, minlength=len(distance))
    most = int(positives.max())
    if most == 0:
        return torch.zeros_like(distance), positives.double()
    slot = torch.arange(len(anchor), device=anchor.device) - (positives.cumsum(0) - positives)[anchor]
    # The distances of the positives of each anchor, padded with infinity.
    padded = distance.new_full((len(distance), most), torch.inf)
    padded[anchor, slot] = distance[anchor, place]
    of_positive, weights, triplets = _counts(distance, padded, positives, negative, margin, semihard)
    weights[anchor, place] = of_positive[anchor, slot]
    return weights, triplets


def _dense(
    distance: Tensor, positive: Tensor, negative: Tensor, margin: float, semihard: bool
) -> tuple[Tensor, Tensor]:
    """As `_triplets`, with a place for every reference instead of the largest number of positives: nothing is
    read from a GPU."""
    padded = distance.masked_fill(torch.logical_not(positive), torch.inf)
    of_positive, weights, triplets = _counts(distance, padded, positive.sum(1), negative, margin, semihard)
    return torch.where(positive, of_positive, weights), triplets


def _counts(
    distance: Tensor, padded: Tensor, positives: Tensor, negative: Tensor, margin: float, semihard: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The triplets of each positive, minus those of each negative, and those of each anchor in float64.

    padded: the distances of the positives of each anchor, and infinity; the first result has its order.
    """
    nearest, order = padded.sort(1)
    # A negative forms triplets with the positives from place `first` to before place `last`.
    first = torch.searchsorted(nearest, distance - margin, right=True)
    last = torch.searchsorted(nearest, distance) if semihard else positives[:, None]
    of_negative = torch.sub(last, first).to(distance.dtype).mul_(negative)
    places = padded.shape[1]
    steps = distance.new_zeros(len(distance), places + 1).scatter_add_(1, first, negative)
    if semihard:
        steps.scatter_add_(1, last, -negative)
    of_positive = torch.empty_like(nearest).scatter_(1, order, steps.cumsum(1)[:, :places])
    triplets = of_negative.sum(1, dtype=torch.float64)
    return of_positive, of_negative.neg_(), triplets
