"""KoLeo: increases the distance of each embedding to its nearest neighbour.

(Sablayrolles et al. 2019; IRT eq. 5.)

    loss = -1/B sum_i log rho_i
    rho_i = || z_i - z_nn(i) + epsilon ||      nn(i) = argmax_{j != i} z_i . z_j

This is the Kozachenko-Leonenko estimate of differential entropy up to a constant. The choice of the neighbour
has no gradient; both vectors of a pair receive one. epsilon is added to every component of the difference, so
that two equal vectors cost -log(epsilon sqrt(D)), 10.84 at D = 384, instead of infinity.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.runtime.device.precision import full_precision, without_autocast

_EPSILON = 1e-6


def koleo(embeddings: Float[Tensor, "B D"]) -> Float[Tensor, ""]:
    """The regulariser of unit vectors; 0 for a batch of one vector, which has no neighbour."""
    with without_autocast(embeddings):
        vectors = full_precision(embeddings)
        if len(vectors) < 2:
            return (vectors * 0).sum()
        with torch.no_grad():
            nearest = (vectors @ vectors.T).fill_diagonal_(-torch.inf).argmax(1)
        return -functional.pairwise_distance(vectors, vectors[nearest], eps=_EPSILON).log().mean()


class Koleo(nn.Module):
    """`koleo` as a module."""

    forward = staticmethod(koleo)
