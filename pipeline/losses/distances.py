"""Euclidean distances of two sets of vectors from one matrix product, and their gradient.

    d_ij = || a_i - b_j ||      d_ij^2 = a_i . a_i + b_j . b_j - 2 a_i . b_j
    dL/da_i = sum_j (dL/dd_ij / d_ij) (a_i - b_j)

The error of the sum of three terms is a few roundings of the largest term. Vectors with a smaller distance
count as duplicates: the distance is 0, and of the subgradients of the norm at 0 the gradient is 0 too.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_ROUNDINGS = 8  # of the value 1, the squared length of a unit vector: a distance of about 1e-3 in float32


def euclidean(
    a: Float[Tensor, "A D"],
    b: Float[Tensor, "S D"],
    b_squares: Float[Tensor, "S"],
) -> tuple[Float[Tensor, "A S"], Float[Tensor, "A S"]]:
    """d and 1 / d, both 0 for duplicates. b_squares: b . b, which all blocks of a share."""
    squared = torch.addmm(b_squares, a, b.T, alpha=-2).add_(squares(a)[:, None])
    smallest = _ROUNDINGS * torch.finfo(squared.dtype).eps
    inverse = functional.threshold(squared, smallest, torch.inf).rsqrt_()
    return functional.threshold(squared, smallest, 0.0, inplace=True).sqrt_(), inverse


def squares(vectors: Float[Tensor, "S D"]) -> Float[Tensor, "S"]:
    """The squared length of each vector."""
    return torch.einsum("sd,sd->s", vectors, vectors)


def pull(
    weights: Float[Tensor, "A S"], a: Float[Tensor, "A D"], b: Float[Tensor, "S D"]
) -> Float[Tensor, "A D"]:
    """sum_j w_ij (a_i - b_j), which is dL/da for weights w = (dL/dd) / d.

    With w transposed and a and b exchanged it is dL/db.
    """
    return torch.addmm(weights.sum(1, keepdim=True) * a, weights, b, alpha=-1)
