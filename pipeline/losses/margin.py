"""Margin loss with distance-weighted negatives (Wu et al. 2017, Sampling Matters in Deep Embedding Learning).

    loss = sum_i [ sum_{p in P_i} t_ip + |P_i| sum_n w_in t_in ] / N
    t_ip = [ d_ip - beta + alpha ]_+      t_in = [ beta - d_in + alpha ]_+      d = || z_i - z_j ||
    w_in ~ 1 / q(max(d_in, cutoff)) over the negatives with d_in < beta + alpha
    q(d) = d^(D-2) (1 - d^2 / 4)^((D-3)/2)

q is the density of the distances of random points on the sphere, N the number of terms that are not zero. The
released code draws a negative for each positive of an anchor with the probabilities w. As every such negative
costs something, N does not depend on the draw, and the value here is the mean over all draws, without random
numbers; w has no gradient, as there.

Deviations: beta is a constant, where the default of the released code learns one of each class. An anchor
without such a negative has none, where the code draws any image.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.losses.blocked import Blocked
from unseen.losses.distances import euclidean, pull, squares
from unseen.losses.pairs import PairLoss, Pairs


class Margin(PairLoss):
    """margin: alpha. boundary: beta. cutoff: a distance. Raises ValueError unless 0 < cutoff <= 1 and the sum
    of margin and boundary is less than 2, the largest distance.
    """

    gradient = "surrogate"

    def __init__(self, margin: float, boundary: float, cutoff: float) -> None:
        super().__init__()
        if not 0 < cutoff <= 1 or margin + boundary >= 2:
            raise ValueError(
                f"expected 0 < cutoff <= 1 and margin + boundary < 2, got {cutoff}, {margin}, {boundary}"
            )
        self.margin, self.boundary, self.cutoff = margin, boundary, cutoff

    def cost(self, pairs: Pairs) -> Float[Tensor, ""]:
        return _Weighted.apply(pairs.anchors, pairs.second, pairs, self)


class _Weighted(Blocked):
    """Value and gradient in one pass, with the matrix of all pairs."""

    @staticmethod
    def forward(ctx: Any, anchors: Tensor, references: Tensor, pairs: Pairs, loss: Margin) -> Tensor:
        distance, inverse = euclidean(anchors, references, squares(references))
        same = pairs.labels[:, None] == pairs.reference_labels
        positive = same if pairs.self_index is None else same.scatter(1, pairs.self_index[:, None], False)
        pulled = (positive & (distance > loss.boundary - loss.margin)).to(distance.dtype)
        pushed = torch.logical_not(same) & (distance < loss.boundary + loss.margin)
        negatives = positive.sum(1, keepdim=True) * _probabilities(
            distance, pushed, anchors.shape[1], loss.cutoff
        )
        slopes = pulled - negatives  # dt/dd, summed over the terms of a pair
        terms = pulled.sum() + negatives.sum()
        count = terms.clamp(min=1)
        weights = slopes * inverse / count
        ctx.save_for_backward(pull(weights, anchors, references), pull(weights.T, references, anchors))
        total = (slopes * (distance - loss.boundary)).sum() + loss.margin * terms
        return total / count


def _probabilities(
    distance: Float[Tensor, "B S"], chosen: Tensor, dim: int, cutoff: float
) -> Float[Tensor, "B S"]:
    """w of the chosen pairs, 0 of the others; a row without a chosen pair is 0."""
    cut = distance.clamp(cutoff, 1.999)  # chosen pairs are nearer than 2
    exponent = (2 - dim) * cut.log() - (dim - 3) / 2 * (1 - cut.square() / 4).log()
    lowest = torch.finfo(exponent.dtype).min
    return exponent.masked_fill(~chosen, lowest).softmax(1) * chosen
