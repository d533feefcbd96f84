"""CRT: the projection of the positions onto the prototypes (sec. 3.1, eq. 2, fig. 2).

    w_kj = softplus(x_j . c_k)        r_k = sum_j w_kj (x_j - c_k)

w_kj is the weight with which position j enters the code of prototype k.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from unseen.methods.crt import Crt
from unseen.methods.explain.weights import PositionWeights
from unseen.networks.coded_residual import CodedResidualBranches
from unseen.runtime.device.precision import full_precision

PROTOTYPES = 8  # with maps of their own, as in fig. 2 of the paper


def projection(
    features: Float[Tensor, "B L H W"], prototypes: Float[Tensor, "M L"]
) -> Float[Tensor, "B M P"]:
    """w, of the raw dot products: the paper normalises neither side."""
    return functional.softplus(prototypes.to(features.dtype) @ features.flatten(2))


@torch.no_grad()
def position_weights(method: Crt, images: Float[Tensor, "B 3 H W"]) -> list[PositionWeights]:
    """The weights of the test branch: their sum over the prototypes, and those of single prototypes.

    These are the PROTOTYPES prototypes whose weights differ most between the positions of the images: the
    largest mean over images of the standard deviation over positions. Empty for the control without
    prototypes (`transform: average`).
    """
    if not isinstance(method.branches, CodedResidualBranches):
        return []
    features = full_precision(method.backbone(images).maps[-1])
    height, width = features.shape[2:]
    weights = projection(features, method.branches.prototypes[0])
    deviations = weights.std(2, correction=0).mean(0)
    variable = deviations.argsort(descending=True, stable=True)[:PROTOTYPES].tolist()
    return [
        PositionWeights("projection", weights.sum(1), height, width),
        *(PositionWeights(f"prototype {k + 1}", weights[:, k], height, width, detail=True) for k in variable),
    ]
