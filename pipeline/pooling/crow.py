"""CroW: weights of positions by their activity, of channels by their rarity, then the average (Kalantidis et al. 2016; released GSP code).

    x = relu(f)      alpha_p = sqrt(s_p / ||s||), s_p = sum_l x_lp      beta_l = log( (L e + sum_k q_k) / (e + q_l) ), q_l = mean_p sigmoid(x_lp)
    v_l = 1/P sum_p x_lp alpha_p beta_l        e = 1e-16

CroW itself measures a channel's rarity by the share of positions that are not zero; its differentiable form here is that of the GSP code.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from pipeline.pooling.positions import positions

_EPSILON = 1e-16


class Crow(nn.Module):
    """Cross-dimensional weighting without parameters.

    A map with no positive value pools to 0 with gradient 0, and so does a position without one (in the released code both are NaN: s / ||s|| and the
    slope of the square root).
    """

    projects = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.out_channels = channels

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        active = positions(features).relu()
        activity = active.sum(1, keepdim=True)
        somewhere = activity > 0
        total = torch.linalg.vector_norm(activity, dim=2, keepdim=True)
        total = torch.where(total > 0, total, 1)
        spatial = torch.where(somewhere, torch.where(somewhere, activity / total, 1).sqrt(), 0)
        share = active.sigmoid().mean(2)
        channel = ((share.shape[1] * _EPSILON + share.sum(1, keepdim=True)) / (_EPSILON + share)).log()
        return (active * spatial).mean(2) * channel
