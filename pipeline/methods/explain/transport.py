"""GSP: the transported mass of each position, and the prototype that receives most of it (sec. 4.1).

    p_j = 1/mu sum_i pi_ij        dominant prototype of j: argmax_i pi_ij = argmin_i c_ij

p_j is the pooling weight (fig. 3b), and fig. 5 colours the positions by their dominant prototype. The second
equation holds because pi_ij / pi_kj = exp(-epsilon (c_ij - c_kj)).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.explain.weights import PositionWeights
from unseen.poolings.gsp import Gsp
from unseen.poolings.unit_ball import distances


def transported(
    pooling: Gsp, features: Float[Tensor, "B L H W"]
) -> tuple[Float[Tensor, "B P"], Int[Tensor, "B P"] | None]:
    """p, whose rows sum to 1, and the dominant prototypes. Before the prototypes are initialised p is 1/P,
    and there is no dominant prototype."""
    mass = pooling.transport(features)[2]
    if not bool(pooling.initialized):
        return mass, None
    rows = features.flatten(2).transpose(1, 2).to(mass.dtype)
    return mass, distances(pooling.prototypes.to(mass.dtype), rows).argmin(1)


@torch.no_grad()
def position_weights(method: EmbeddingMethod, images: Float[Tensor, "B 3 H W"]) -> list[PositionWeights]:
    """The transported mass of the pooling of a method, with the dominant prototypes."""
    pooling = method.head.pooling
    features = pooling.transform(method.backbone(images).maps[-1])
    mass, prototype = transported(pooling.gsp, features)
    height, width = features.shape[2:]
    return [PositionWeights("transported mass", mass, height, width, prototype=prototype)]
