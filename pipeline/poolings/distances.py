"""Distances of prototypes and features, both clipped to the unit ball (GSP sec. 4.1).

c_ij = || w_i - f_j ||
"""

from jaxtyping import Float
from torch import Tensor

from unseen.poolings.unit_ball import clip

SAME_PLACE = 1e-7  # smaller distances are rounding; at 0 the norm has no gradient


def distances(prototypes: Float[Tensor, "M L"], features: Float[Tensor, "B P L"]) -> Float[Tensor, "B M P"]:
    """c, from |w|^2 + |f|^2 - 2 w.f in float64. In float32 this loses half of the digits for near vectors."""
    centers, rows = clip(prototypes)[0].double(), clip(features)[0].double()
    squares = centers.square().sum(1).unsqueeze(1) + rows.square().sum(2).unsqueeze(1)
    squared = squares - 2 * (rows @ centers.T).transpose(1, 2)
    return squared.clamp(min=SAME_PLACE**2).sqrt().to(features.dtype)
