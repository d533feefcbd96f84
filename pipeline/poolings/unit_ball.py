"""The unit ball, to which GSP clips prototypes and features (sec. 4.1): u / max(1, ||u||), which leaves
shorter vectors unchanged. Distances of clipped prototypes and features: c_ij = || w_i - f_j ||."""

import torch
from jaxtyping import Float
from torch import Tensor

SAME_PLACE = 1e-7  # smaller distances are rounding; at 0 the norm has no gradient


def clip(vectors: Float[Tensor, "... L"]) -> tuple[Float[Tensor, "... L"], Float[Tensor, "... 1"]]:
    """The clipped vectors, and the norms ||u|| before clipping."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norm.clamp(min=1), norm


def clip_backward(
    gradient: Float[Tensor, "... L"], clipped: Float[Tensor, "... L"], norm: Float[Tensor, "... 1"]
) -> Float[Tensor, "... L"]:
    """The gradient by the vectors, from the gradient by the clipped vectors, which is overwritten.

    It is projected on the sphere for vectors longer than 1, and unchanged for the others.
    """
    along = (gradient * clipped).sum(-1, keepdim=True).mul_(norm > 1)
    return gradient.sub_(clipped * along).div_(norm.clamp(min=1))


def distances(prototypes: Float[Tensor, "M L"], features: Float[Tensor, "B P L"]) -> Float[Tensor, "B M P"]:
    """c, from |w|^2 + |f|^2 - 2 w.f in float64. In float32 this loses half of the digits for near vectors."""
    centers, rows = clip(prototypes)[0].double(), clip(features)[0].double()
    squares = centers.square().sum(1).unsqueeze(1) + rows.square().sum(2).unsqueeze(1)
    squared = squares - 2 * (rows @ centers.T).transpose(1, 2)
    return squared.clamp(min=SAME_PLACE**2).sqrt().to(features.dtype)
