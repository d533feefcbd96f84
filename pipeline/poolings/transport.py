"""Entropic partial transport from features to prototypes, the sum weighted by it, and the gradients of both.

(GSP sec. 4.1, prop. 4.2, 4.3.)

    minimise  <c, pi> + 1/epsilon (H(pi) + H(rho))
    subject to   rho_j + sum_i pi_ij = 1/P,   sum_ij pi_ij = mu

    c_ij = || w_i - f_j ||  prototype i, feature j, both clipped to the unit ball     H(u) = sum u log u

pi (M, P) is the transported mass, rho (P,) the rest. The problem has one unknown per image. With
q_.j = softmax_i(-epsilon c_ij) and l_j = logsumexp_i(-epsilon c_ij),

    P sum_i pi_ij = a_j = sigmoid(tau + l_j)      pi_ij = q_ij a_j / P      rho_j = (1 - a_j) / P
    and tau such that  mean_j a_j = mu.

The paper iterates on t = exp(tau) (`transport_iteration.py`). Its 100 iterations converge for small epsilon,
but have errors of 0.1 and more at epsilon = 20. Newton's method on logit(mean a) - logit(mu) within a
shrinking bracket converges for all. mu = 1 has the solution a = 1, for which tau is infinite.
"""

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import hardshrink

from unseen.poolings.unit_ball import SAME_PLACE, clip, clip_backward
from unseen.runtime.device.host import reads_wait

# Costs are in [0, 2], so that epsilon bounds the range of l. (epsilon, steps): the number of steps after
# which mean_j a_j is within 1e-13 of mu, plus one, for l of this range that is two-valued, uniform, one-sided
# or clustered, 1 to 196 positions, and mu from 0.01 to 0.99.
_STEPS = ((0.5, 4), (2.0, 5), (5.0, 8), (math.inf, 10))
_SOFT = 5.0  # up to this epsilon the moments of l are a better start than its quantile
_ROUNDING = 1e-13  # of a logit in float64


def multiplier(
    log_mass: Float[Tensor, "B P"], ratio: float, epsilon: float, tolerance: float = 1e-7
) -> Float[Tensor, "B 1"]:
    """tau of each image such that mean_j sigmoid(tau + l_j) = ratio, for l = log_mass and 0 < ratio < 1.

    The range of l must be at most 2 epsilon. Newton steps that would leave the bracket are replaced by
    bisections. An image at its root does not change. On a CPU the iteration ends at a step of at most
    `tolerance` in all images, with an error of at most about its square, because |g''| <= 2 g' for g = logit
    mean a. On a GPU all steps are made, because the host would have to wait for the step size.
    """
    target = math.log(ratio) - math.log1p(-ratio)
    if epsilon <= _SOFT:
        # The mean of a logistic function over a normal distribution is about
        # sigmoid(mean / sqrt(1 + pi / 8 variance)) (MacKay 1992).
        variance, middle = torch.var_mean(log_mass, 1, correction=0, keepdim=True)
        tau = variance.mul_(math.pi / 8).add_(1).sqrt_().mul_(target).sub_(middle)
    else:  # a is nearly a step function with its step at the quantile of l
        middle = _upper_quantile(log_mass, ratio)
        tau = -middle
    low, high = target - 2 * epsilon - middle, target + 2 * epsilon - middle
    for _ in range(next(count for bound, count in _STEPS if epsilon <= bound)):
        a = torch.sigmoid(log_mass + tau)
        mean, slope = a.mean(1, keepdim=True), torch.addcmul(a, a, a, value=-1).mean(1, keepdim=True)
        # nearly linear in tau, with slope 1 in both tails
        error = hardshrink(mean.logit() - target, _ROUNDING)
        # The slope of the logit is mean a (1 - a) / (mean a (1 - mean a)).
        step = error * torch.addcmul(mean, mean, mean, value=-1) / slope.clamp_(min=1e-300)
        newton = tau - step
        if not reads_wait(step) and not hardshrink(step, tolerance).any():
            return newton
        below = error <= 0
        low, high = torch.where(below, tau, low), torch.where(below, high, tau)
        tau = torch.where(newton.clamp(low, high) == newton, newton, torch.lerp(low, high, 0.5))
    return tau


def _upper_quantile(values: Tensor, share: float) -> Tensor:
    """The lower end of the largest `share` of each row.

    It is between two values if the share is a whole number of values.
    """
    count = values.shape[1]
    above = min(int(share * count + 1e-9), count - 1)
    ordered = values.sort(1, descending=True).values
    last = ordered[:, above : above + 1]
    return (
        (ordered[:, above - 1 : above] + last) / 2
        if abs(share * count - above) < 1e-9 and above > 0
        else last
    )


class TransportPooling(torch.autograd.Function):
    """Partial transport and the sum weighted by it.

    (features (B, L, P), prototypes (M, L), active, mu, epsilon) -> (pooled (B, L), attributes (B, M), weights
    (B, P))

    The weights p_j = (1/P - rho_j) / mu and the attributes z_i = sum_j pi_ij / mu both sum to 1. pooled =
    sum_j p_j f_j of the unclipped features. Features and prototypes receive gradients. If the tensor `active`
    is false, the weights are 1/P and the attributes have no gradient. It is a tensor so that the host does
    not wait for a GPU at every step.

    Arrays of size M x P or L x P are computed as columns (., B P) and in place where possible, because the
    time on a CPU is that of memory access. Maps are then copied in contiguous runs of P values, and sums over
    channels or prototypes are sums of long rows. Distances are computed by one product in float64: |f|^2 +
    |w|^2 - 2 f.w loses half of the digits if a feature is near a prototype, and epsilon multiplies the error.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, prototypes: Tensor, active: Bool[Tensor, ""], ratio: float, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype = features.dtype
        batch, channels, positions = features.shape
        columns = features.transpose(0, 1).reshape(channels, batch * positions)
        centers, center_norm = clip(prototypes.double())
        # [-2 wbar, 1, |wbar|^2] [f, |fbar|^2 max(|f|, 1), max(|f|, 1)]^T = max(|f|, 1) ||wbar - fbar||^2,
        # where |fbar|^2 max(|f|, 1) = min(|f|^2, |f|).
        left = torch.cat(
            [-2 * centers, torch.ones_like(center_norm), center_norm.clamp(max=1).square_()], dim=1
        )
        right = torch.empty(channels + 2, batch * positions, dtype=torch.float64, device=features.device)
        right[:channels] = columns
        norm_squared = right[:channels].square().sum(0)
        norm = norm_squared.sqrt()
        torch.minimum(norm_squared, norm, out=right[-2])
        longer = torch.clamp(norm, min=1, out=right[-1])
        # Costs in units of 1 / (epsilon log2 e) for exp2, because exp is slow for results near zero.
        unit = epsilon / math.log(2)
        smallest = (SAME_PLACE * unit) ** 2
        squared = (left @ right).mul_(unit**2 / longer)
        nearest = squared.amin(0).clamp_(min=smallest)
        cost = squared.to(dtype).clamp_(min=smallest).sqrt_()
        assignment = torch.sub(nearest.to(dtype).sqrt(), cost).exp2_()
        mass = assignment.sum(0)
        assignment.div_(mass)  # q
        # q / (unit c), 0 where c = 0
        pull = torch.div(assignment, torch.threshold_(cost, 2 * SAME_PLACE * unit, math.inf), out=cost)
        if ratio < 1:
            log_mass = mass.double().log_().sub_(nearest.sqrt_(), alpha=math.log(2)).view(batch, positions)
            tau = multiplier(log_mass, ratio, epsilon, torch.finfo(dtype).eps ** 0.5)
            a = torch.sigmoid(log_mass + tau)
            slope = torch.addcmul(a, a, a, value=-1)
        else:
            a = norm.new_ones(batch, positions)
            slope = torch.zeros_like(a)
        transported = (a / a.sum(1, keepdim=True)).to(dtype)
        weights = torch.where(active, transported, 1 / positions)
        by_position = _by_image(assignment, batch).transpose(1, 2)
        attributes = torch.bmm(transported.unsqueeze(1), by_position).squeeze(1)
        pooled = torch.bmm(weights.unsqueeze(1), features.transpose(1, 2)).squeeze(1)
        ctx.ratio, ctx.epsilon = ratio, epsilon
        saved = [tensor.to(dtype) for tensor in (longer, centers, center_norm, slope)]
        ctx.save_for_backward(*saved, columns, assignment, pull, weights, active)
        return pooled, attributes, weights

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, to_pooled: Tensor, to_attributes: Tensor, to_weights: Tensor
    ) -> tuple[Tensor | None, ...]:
        longer, centers, center_norm, slope, columns, assignment, pull, weights, active = ctx.saved_tensors
        batch, positions = weights.shape
        # dL/dp_j P mu: p changes both the sum and the attributes.
        through = torch.bmm(to_attributes.unsqueeze(1), _by_image(assignment, batch)).squeeze(1)
        direct = (to_weights + through).unsqueeze(1)
        towards = torch.baddbmm(direct, to_pooled.unsqueeze(1), _by_image(columns, batch)).squeeze(1)
        # tau keeps mean_j a_j at mu, so only the deviation from the slope-weighted mean remains. This is
        # equivalent to prop. 4.3.
        total = slope.sum(1, keepdim=True)
        center = (slope * towards).sum(1, keepdim=True) / total.clamp(min=torch.finfo(total.dtype).tiny)
        to_mass = slope * (towards - center) / (positions * ctx.ratio)
        # Gradient by the exponents -epsilon c_ij: q_ij (dL/dl_j + p_j (dL/dz_i - sum_k q_kj dL/dz_k)).
        # Multiplied by epsilon / c_ij it is the gradient along the vector from f_j to w_i. `pull` lacks
        # epsilon and its unit. Clipping divides by max(|f_j|, 1).
        scale = active * ((ctx.epsilon**2 / math.log(2)) / longer.view(batch, positions))
        constant, slant = (to_mass - weights * through) * scale, weights * scale
        by_attribute = to_attributes.T.contiguous().unsqueeze(2)
        along = torch.addcmul(constant, by_attribute, slant).view_as(pull).mul_(pull)
        by_features = by_prototypes = None
        if ctx.needs_input_grad[0]:
            # The gradient of fbar is sum_i along_ij (w_i - fbar_j). A clipped feature receives its component
            # orthogonal to f_j, so multiples of f_j can be omitted.
            gradient = centers.T @ along
            itself = torch.where(longer > 1, (gradient * columns).sum(0) / longer.square(), along.sum(0))
            gradient.addcmul_(columns, itself, value=-1)
            by_features = gradient.new_empty(batch, len(columns), positions)
            torch.addcmul(
                _by_image(gradient, batch), to_pooled.unsqueeze(2), weights.unsqueeze(1), out=by_features
            )
        if ctx.needs_input_grad[1]:
            by_centers = torch.addmm(centers * (along @ longer).unsqueeze(1), along, columns.T, beta=-1)
            by_prototypes = clip_backward(by_centers, centers, center_norm)
        return by_features, by_prototypes, None, None, None


def _by_image(columns: Float[Tensor, "N BP"], batch: int) -> Float[Tensor, "B N P"]:
    """The columns of each image, as a view."""
    return columns.view(len(columns), batch, -1).transpose(0, 1)
