"""Distances between prototypes and features, both clipped to the unit ball: c_ij = || w_i - f_j || (GSP sec. 4.1), with autograd's gradient."""

from jaxtyping import Float
from torch import Tensor

from pipeline.pooling.unit_ball import clip

SAME_PLACE = 1e-7  # distances below are rounding: prototype and feature coincide, where the norm has no gradient


def distances(prototypes: Float[Tensor, "M L"], features: Float[Tensor, "B P L"]) -> Float[Tensor, "B M P"]:
    """c. |w|^2 + |f|^2 - 2 w.f in double: in single it loses half of the digits where a feature lies at a prototype."""
    centers, rows = clip(prototypes)[0].double(), clip(features)[0].double()
    squared = centers.square().sum(1).unsqueeze(1) + rows.square().sum(2).unsqueeze(1) - 2 * (rows @ centers.T).transpose(1, 2)
    return squared.clamp(min=SAME_PLACE**2).sqrt().to(features.dtype)
