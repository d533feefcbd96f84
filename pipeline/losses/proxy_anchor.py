"""Proxy-Anchor loss (Kim et al. 2020; Multi-Head eq. 5): every class is a learned proxy, every proxy is an anchor.

    loss = 1/|P+| sum_{p in P+} log(1 + sum_{x in X_p} exp(-alpha (s_xp - delta))) + 1/C sum_p log(1 + sum_{x not in X_p} exp(alpha (s_xp + delta)))

s_xp is the cosine of embedding x and proxy p, X_p the embeddings of the batch that have class p, P+ the proxies with such embeddings.
The negative part is divided by all C proxies, as in the authors' code (Multi-Head's |P-| is the same once a batch holds two classes).
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from pipeline.losses.precision import full_precision, without_autocast

_EPSILON = 1e-12  # under the root of a proxy's norm (released code)
_CPU_ELEMENTS = 1 << 18  # similarities held at a time: what stays in a core's cache
_GPU_ELEMENTS = 1 << 26  # or what fills a GPU
_LOG_2 = math.log(2)
_SAFE = 60.0  # an exponent whose power of two single precision holds, even summed over a batch


class ProxyAnchor(nn.Module):
    """The loss and its proxies. alpha: scale. margin: delta, a cosine. Classes are labelled 0 to classes - 1."""

    def __init__(self, classes: int, dim: int, alpha: float, margin: float) -> None:
        super().__init__()
        self.alpha, self.margin = alpha, margin
        self.proxies = nn.Parameter(torch.empty(classes, dim))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors. A proxy's own length does not matter. A label outside the classes is an IndexError (on a CPU)."""
        with without_autocast(embeddings):
            anchors = full_precision(embeddings)
            return _Blocked.apply(anchors, self.proxies.to(anchors.dtype), labels, self.alpha, self.margin)


class _Blocked(torch.autograd.Function):
    """Value and gradient in one sweep over blocks of proxies: a proxy's sum over the batch gives its weights dloss/ds at once."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, proxies: Tensor, labels: Tensor, alpha: float, margin: float) -> Tensor:
        classes, batch = len(proxies), len(embeddings)
        to_embeddings, to_proxies = ctx.needs_input_grad[:2]
        inverse = torch.linalg.vector_norm(proxies, dim=1, keepdim=True).square_().add_(_EPSILON).rsqrt_()
        embedding_gradient = torch.zeros_like(embeddings) if to_embeddings else None
        proxy_gradient = torch.empty_like(proxies) if to_proxies else None
        step = max(1, (_CPU_ELEMENTS if embeddings.device.type == "cpu" else _GPU_ELEMENTS) // max(batch, 1))
        names, order = labels.sort()
        ends = torch.searchsorted(names, torch.arange(0, classes + step, step, device=names.device)).tolist()
        present = len(torch.unique_consecutive(names))
        value = embeddings.new_zeros(())
        for block, start in enumerate(range(0, classes, step)):
            rows = slice(start, start + step)
            unit = proxies[rows] * inverse[rows]
            exponent = (unit * (alpha / _LOG_2)) @ embeddings.T
            inside = slice(ends[block], ends[block + 1])
            own = (names[inside] - start, order[inside])  # the pairs of a sample and the proxy of its class
            near, own_weight = _positives(exponent[own], own[0], len(unit), alpha, margin)
            exponent[own] = -torch.inf  # which are no negatives
            far, powers, weight = _negatives(exponent, alpha, margin)
            value += near / present + far / classes
            weight *= alpha / classes
            powers[own] = own_weight.mul_(-alpha / present) / weight[own[0], 0]
            # the factor of a row is left to what has a column per dimension: what has one per sample is written as few times as can be
            if embedding_gradient is not None:
                embedding_gradient.addmm_(powers.T, unit * weight)
            if proxy_gradient is not None:
                gradient = torch.mm(powers, embeddings, out=proxy_gradient[rows]).mul_(weight)
                along = torch.linalg.vecdot(gradient, unit).unsqueeze_(1)  # the part of the gradient that would only lengthen the proxy
                gradient.addcmul_(unit, along, value=-1).mul_(inverse[rows])
        ctx.save_for_backward(embedding_gradient, proxy_gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return *(None if saved is None else saved * gradient for saved in ctx.saved_tensors), None, None, None


def _safe(alpha: float, margin: float) -> bool:
    """Whether no cosine can make a power overflow, which holds for every constant in use."""
    return alpha / _LOG_2 * (1 + abs(margin)) <= _SAFE


def _positives(exponent: Tensor, proxy: Tensor, proxies: int, alpha: float, margin: float) -> tuple[Tensor, Tensor]:
    """The sum over `proxies` of log(1 + sum exp(-alpha (s - delta))), and exp(-alpha (s - delta)) / (1 + sum) of each pair.

    exponent: alpha s / log 2 of each sample and the proxy of its class; proxy: which.
    """
    exponent = alpha * margin / _LOG_2 - exponent
    if _safe(alpha, margin):
        powers = exponent.exp2_()
        above = exponent.new_zeros(proxies).index_add_(0, proxy, powers)
        return above.log1p().sum(), powers.div_(above.add_(1).index_select(0, proxy))
    shift = exponent.new_zeros(proxies).scatter_reduce_(0, proxy, exponent, "amax")  # the largest exponent of a proxy, at least 0
    powers = exponent.sub_(shift.index_select(0, proxy)).exp2_()
    above = torch.expm1(shift * -_LOG_2).index_add_(0, proxy, powers)  # (1 + sum) 2^-shift - 1
    return above.log1p().add_(shift, alpha=_LOG_2).sum(), powers.div_(above.add_(1).index_select(0, proxy))


def _negatives(exponent: Tensor, alpha: float, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """(the sum over rows of log(1 + sum exp(alpha (s + delta))), powers, weight): powers x weight = exp(alpha (s + delta)) / (1 + sum).

    exponent: rows of alpha s / log 2, overwritten. Powers of two: torch's exp2 keeps its speed at tiny results, its exp does not.
    """
    bias = alpha * margin / _LOG_2
    if _safe(alpha, margin):
        above = exponent.exp2_().sum(1, keepdim=True).mul_(2**bias)
        return above.log1p().sum(), exponent, above.add_(1).reciprocal_().mul_(2**bias)
    shift = exponent.amax(1, keepdim=True).add_(bias).clamp_(min=0)  # the largest exponent, at least 0
    above = exponent.sub_(shift - bias).exp2_().sum(1, keepdim=True).add_(torch.expm1(shift * -_LOG_2))  # (1 + sum) 2^-shift - 1
    return above.log1p().add_(shift, alpha=_LOG_2).sum(), exponent, above.add_(1).reciprocal_()
