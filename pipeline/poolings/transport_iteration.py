"""The paper's solution of the transport problem: K fixed-point steps (GSP prop. 4.2).

The gradient is in closed form (prop. 4.3).

    rho_j = 1/P [ 1 + t s_j ]^-1,  s_j = sum_i exp(-epsilon c_ij)      t = mu / sum_j s_j rho_j
    from t = 1, K times
    pi_ij = t exp(-epsilon c_ij) rho_j

    dL/dc = -epsilon pi * [ dL/dpi - P (q - eta / (mean_j a_j (1 - a_j)) rho) ]
    q = rho * dL/drho + sum_i pi_i. * dL/dpi_i.
    eta = sum_j rho_j dL/drho_j - P sum_j q_j rho_j                                  a = 1 - P rho

This is for the study of fig. 7; `transport.py` solves the same problem exactly. The printed text lacks the
inverse in rho, and rho is outside of the bracket. The steps use tau = log t and l = log s with the same
iterates, because exp(-epsilon c) underflows in float32 for epsilon above about 70.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from unseen.poolings.unit_ball import distances


def iterate(
    cost: Float[Tensor, "B M P"], ratio: float, epsilon: float, iterations: int
) -> tuple[Float[Tensor, "B M P"], Float[Tensor, "B P"]]:
    """(pi, rho) after K steps, with gradients by autograd. The released code makes K + 1 steps."""
    positions = cost.shape[2]
    kernel = -epsilon * cost
    log_mass = torch.logsumexp(kernel, 1)
    tau = torch.zeros_like(log_mass[:, :1])
    for _ in range(iterations):
        exponent = log_mass + tau
        tau = tau + math.log(ratio * positions) - torch.logsumexp(logsigmoid(exponent), 1, keepdim=True)
    log_rho = logsigmoid(-exponent) - math.log(positions)
    return (kernel + (tau + log_rho).unsqueeze(1)).exp(), log_rho.exp()


class ClosedForm(torch.autograd.Function):
    """`iterate` with the gradient of proposition 4.3.

    It is the gradient of the fixed point, at a cost independent of K.

    mean_j a_j (1 - a_j) replaces the paper's 1 - mu - P rho . rho. Both are equal at the fixed point, but the
    latter is a difference of nearly equal numbers.
    """

    @staticmethod
    def forward(
        ctx: Any, cost: Tensor, ratio: float, epsilon: float, iterations: int
    ) -> tuple[Tensor, Tensor]:
        pi, rho = iterate(cost, ratio, epsilon, iterations)
        ctx.epsilon = epsilon
        ctx.save_for_backward(pi, rho)
        return pi, rho

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_pi: Tensor, by_rho: Tensor) -> tuple[Tensor, None, None, None]:
        pi, rho = ctx.saved_tensors
        positions = rho.shape[1]
        q = rho * by_rho + (pi * by_pi).sum(1)
        eta = (rho * by_rho).sum(1, keepdim=True) - positions * (q * rho).sum(1, keepdim=True)
        a = 1 - positions * rho
        slope = (a * (1 - a)).mean(1, keepdim=True).clamp(min=torch.finfo(rho.dtype).tiny)
        bracket = q - eta / slope * rho
        return -ctx.epsilon * pi * (by_pi - positions * bracket.unsqueeze(1)), None, None, None


def iteration_pooling(
    features: Float[Tensor, "B L P"],
    prototypes: Float[Tensor, "M L"],
    active: Bool[Tensor, ""],
    ratio: float,
    epsilon: float,
    iterations: int,
    closed_form: bool,
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B M"], Float[Tensor, "B P"]]:
    """(pooled, attributes, weights) as in `transport.TransportPooling`, from the plan after K steps.

    The weights (1/P - rho_j) / mu sum to 1 only after convergence, the attributes always. mu = 1 is computed
    as the average, which the steps approach no faster than 1 / K.
    """
    cost = distances(prototypes, features.transpose(1, 2))
    positions = cost.shape[2]
    if ratio == 1:
        pi, rho = torch.softmax(-epsilon * cost, 1) / positions, torch.zeros_like(cost[:, 0])
    elif closed_form:
        pi, rho = ClosedForm.apply(cost, ratio, epsilon, iterations)
    else:
        pi, rho = iterate(cost, ratio, epsilon, iterations)
    weights = torch.where(active, (1 / positions - rho) / ratio, 1 / positions)
    attributes = pi.sum(2) / ratio
    attributes = torch.where(active, attributes, attributes.detach())
    return torch.bmm(features, weights.unsqueeze(2)).squeeze(2), attributes, weights
