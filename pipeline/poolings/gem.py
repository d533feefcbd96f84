"""Generalized mean pooling, per channel: v_l = ( 1/P sum_p max(f_lp, eps)^p )^(1/p) (Radenovic et al. 2018).

p = 1 is the average and p -> infinity the maximum of the clamped values. Tokens of a vision transformer are
signed; their negative values become eps. Published: one p for all channels, initially 3, and eps = 1e-6.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import MapPooling, positions
from unseen.runtime.device.precision import full_precision

EPSILON = 1e-6


def generalized_mean(
    values: Float[Tensor, "B L P"], exponent: Float[Tensor, ""] | float
) -> Float[Tensor, "B L"]:
    """The generalized mean over positions, by logarithms, because x^p does not fit float32 at p = 20."""
    log_values = values.clamp(min=EPSILON).log()
    highest = log_values.detach().amax(2, keepdim=True)
    mean = (exponent * (log_values - highest)).exp().mean(2)
    return (highest.squeeze(2) + mean.log() / exponent).exp()


class Gem(MapPooling):
    """Generalized mean pooling with one exponent, learned or fixed.

    Raises ValueError for an exponent that is not positive.
    """

    exponent: Tensor

    def __init__(self, channels: int, exponent: float = 3.0, learnable: bool = True) -> None:
        super().__init__(channels)
        if exponent <= 0:
            raise ValueError(f"the exponent of generalized mean pooling must be positive, got {exponent}")
        start = torch.tensor(exponent)
        if learnable:
            self.exponent = nn.Parameter(start)
        else:
            self.register_buffer("exponent", start)

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        with torch.autocast(features.device.type, enabled=False):
            return generalized_mean(positions(features), full_precision(self.exponent))
