"""Optimal transport pooling: transport of all features to prototypes in equal parts, one sum per prototype.

(Mialon et al. 2021; "OTP" in the GSP code.)

    v = sqrt(M) [ sum_j pi_1j x_j, ..., sum_j pi_Mj x_j ],    x = W f, L -> D / M
    pi = argmin <c, pi> + 1/epsilon sum pi log pi   subject to   sum_j pi_ij = 1/M,  sum_i pi_ij = 1/P
    c_ij = || w_i - x_j ||, both clipped to the unit ball

Sinkhorn: 10 rounds, with gradients by autograd, of
    u_i = -log M - logsumexp_j(v_j - epsilon c_ij),   v_j = -log P - logsumexp_i(u_i - epsilon c_ij)
and pi = exp(u + v - epsilon c). Published: M = 64, epsilon = 2.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import Transform, positions
from unseen.poolings.unit_ball import distances


def sinkhorn(cost: Float[Tensor, "B M P"], epsilon: float, iterations: int) -> Float[Tensor, "B M P"]:
    """The plan after `iterations` rounds, by logarithms.

    Its columns sum to 1/P exactly, its rows to 1/M after convergence.
    """
    kernel = -epsilon * cost
    count, size = cost.shape[1:]
    u = torch.zeros_like(cost[:, :, :1])
    for _ in range(iterations):
        v = -math.log(size) - torch.logsumexp(u + kernel, 1, keepdim=True)
        u = -math.log(count) - torch.logsumexp(v + kernel, 2, keepdim=True)
    v = -math.log(size) - torch.logsumexp(u + kernel, 1, keepdim=True)
    return (u + v + kernel).exp()


class OptimalTransport(nn.Module):
    """Balanced transport to M learned prototypes of D / M dimensions.

    Deviations: the released code iterates on exp(u) and exp(v) and adds 2.2e-16 to each sum. It chooses the
    prototypes by greedy k-centre from 1,024 pooled features, and is average pooling of D / M channels until
    then. Here they start Glorot-uniform, as that code declares them. Raises ValueError if `dim` is no
    multiple of `prototypes`.
    """

    projects = True

    def __init__(
        self, channels: int, dim: int, prototypes: int = 64, weight: float = 2.0, iterations: int = 10
    ) -> None:
        """weight: epsilon, larger is sharper."""
        super().__init__()
        if dim % prototypes:
            raise ValueError(
                f"optimal transport: dim must be a multiple of the {prototypes} prototypes, got {dim}"
            )
        if weight <= 0 or iterations < 1:
            raise ValueError(
                f"optimal transport: weight and iterations must be positive, got {weight} and {iterations}"
            )
        self.out_channels, self.weight, self.iterations = dim, weight, iterations
        self.transform = Transform(channels, dim // prototypes)
        self.prototypes = nn.Parameter(nn.init.xavier_uniform_(torch.empty(prototypes, dim // prototypes)))

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B D"]:
        """The pooled vectors, in float32 at least."""
        transformed = positions(self.transform(features)).transpose(1, 2)
        with torch.autocast(features.device.type, enabled=False):
            cost = distances(self.prototypes.to(transformed.dtype), transformed)
            plan = sinkhorn(cost, self.weight, self.iterations)
            return len(self.prototypes) ** 0.5 * torch.bmm(plan, transformed).flatten(1)
