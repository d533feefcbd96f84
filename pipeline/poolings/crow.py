"""CroW: the average with weights of positions by activity, and weights of channels by rarity.

(Kalantidis et al. 2016; released GSP code.)

    v_l = 1/P sum_p x_lp alpha_p beta_l        x = relu(f)
    alpha_p = sqrt(s_p / ||s||),                            s_p = sum_l x_lp
    beta_l  = log( (L e + sum_k q_k) / (e + q_l) ),         q_l = mean_p sigmoid(x_lp),    e = 1e-16

In CroW the rarity of a channel is the share of positions that are not zero. The differentiable form here is
that of the GSP code.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions

_EPSILON = 1e-16


class Crow(MapPooling):
    """Cross-dimensional weighting without parameters.

    Deviation: a map without a positive value pools to 0 with gradient 0, and a position without a positive
    value has gradient 0. In the released code both are NaN, by s / ||s|| and the slope of the square root.
    """

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        active = positions(features).relu()
        activity = active.sum(1, keepdim=True)
        active_positions = activity > 0
        total = torch.linalg.vector_norm(activity, dim=2, keepdim=True)
        total = torch.where(total > 0, total, 1)
        safe = torch.where(active_positions, activity / total, 1)  # the slope of the root is infinite at 0
        spatial = torch.where(active_positions, safe.sqrt(), 0)
        share = active.sigmoid().mean(2)
        channel = ((share.shape[1] * _EPSILON + share.sum(1, keepdim=True)) / (_EPSILON + share)).log()
        return (active * spatial).mean(2) * channel
