"""Clipping to the unit ball: u / max(1, ||u||). Shorter vectors stay as they are (GSP sec. 4.1)."""

import torch
from jaxtyping import Float
from torch import Tensor


def clip(vectors: Float[Tensor, "... L"]) -> tuple[Float[Tensor, "... L"], Float[Tensor, "... 1"]]:
    """The clipped vectors, and the norms ||u|| that they had before."""
    norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / norm.clamp(min=1), norm


def clip_backward(gradient: Float[Tensor, "... L"], clipped: Float[Tensor, "... L"], norm: Float[Tensor, "... 1"]) -> Float[Tensor, "... L"]:
    """The gradient by the vectors, from that by the clipped ones: projected on the sphere where a vector was longer than 1, untouched elsewhere.

    Overwrites `gradient`.
    """
    along = (gradient * clipped).sum(-1, keepdim=True).mul_(norm > 1)
    return gradient.sub_(clipped * along).div_(norm.clamp(min=1))
