"""Clipping to the unit ball: u / max(1, ||u||), which leaves shorter vectors unchanged (GSP sec. 4.1)."""

import torch
from jaxtyping import Float
from torch import Tensor


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
