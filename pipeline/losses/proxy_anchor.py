"""Proxy-Anchor loss: every class has a learned proxy, every proxy is an anchor.

(Kim et al. 2020; Multi-Head eq. 5.)

    loss = 1/|P+| sum_{p in P+} log(1 + sum_{x in X_p} exp(-alpha (s_xp - delta)))
         + 1/C    sum_p         log(1 + sum_{x not in X_p} exp(alpha (s_xp + delta)))

s_xp is the cosine of embedding x and proxy p, X_p the embeddings of class p in the batch, and P+ the proxies
with such embeddings. The negative part is divided by all C proxies, as in the authors' code. (|P-| of
Multi-Head is equal if a batch contains two classes.)
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.losses.blocked import Blocked, block_size
from unseen.runtime.device.host import reads_wait
from unseen.runtime.device.precision import full_precision, without_autocast

_EPSILON = 1e-12  # under the root of the norm of a proxy (released code)
_CPU_ELEMENTS = 1 << 18  # similarities in memory at a time, so that they stay in the cache of a core
_LOG_2 = math.log(2)
_SAFE = 60.0  # largest exponent whose power of two fits float32, also summed over a batch


class ProxyAnchor(nn.Module):
    """The loss and its proxies. alpha: scale. margin: delta, a cosine. Labels are 0 to classes - 1."""

    inputs = "proxies"

    def __init__(self, classes: int, dim: int, alpha: float, margin: float) -> None:
        super().__init__()
        self.alpha, self.margin = alpha, margin
        self.proxies = nn.Parameter(torch.empty(classes, dim))
        nn.init.kaiming_normal_(self.proxies, mode="fan_out")

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors, independent of the lengths of the proxies.

        Raises IndexError for a label outside the classes (on a CPU).
        """
        with without_autocast(embeddings):
            anchors = full_precision(embeddings)
            return _Blocked.apply(anchors, self.proxies.to(anchors.dtype), labels, self.alpha, self.margin)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of proxies.

    The sum of a proxy over the batch gives its weights dloss/ds.
    """

    @staticmethod
    def forward(
        ctx: Any, embeddings: Tensor, proxies: Tensor, labels: Tensor, alpha: float, margin: float
    ) -> Tensor:
        classes, batch = len(proxies), len(embeddings)
        to_embeddings, to_proxies = ctx.needs_input_grad[:2]
        inverse = torch.linalg.vector_norm(proxies, dim=1, keepdim=True).square_().add_(_EPSILON).rsqrt_()
        embedding_gradient = torch.zeros_like(embeddings) if to_embeddings else None
        proxy_gradient = torch.empty_like(proxies) if to_proxies else None
        step = block_size(embeddings, batch, _CPU_ELEMENTS)
        names, order = labels.sort()
        # The host does not wait for the samples of a block: each block has all samples, and excludes others.
        everywhere = step < classes and reads_wait(names)
        if everywhere or step >= classes:
            ends = [0, batch]
        else:
            starts = torch.arange(0, classes + step, step, device=names.device)
            ends = torch.searchsorted(names, starts).tolist()
        present: int | Tensor
        if reads_wait(names):
            present = (1 + (names[1:] != names[:-1]).sum()).to(embeddings.dtype)
        else:
            present = len(torch.unique_consecutive(names))
        value = embeddings.new_zeros(())
        for block, start in enumerate(range(0, classes, step)):
            rows = slice(start, start + step)
            unit = proxies[rows] * inverse[rows]
            exponent = (unit * (alpha / _LOG_2)) @ embeddings.T
            inside = slice(None) if everywhere else slice(ends[block], ends[block + 1])
            proxy, others = names[inside] - start, None
            if everywhere:
                others = (proxy < 0) | (proxy >= len(unit))
                proxy.clamp_(0, len(unit) - 1)
            # pairs of a sample with the proxy of its class, except `others`
            positive = (proxy, order[inside])
            similar = exponent[positive]
            far = similar if others is None else similar.masked_fill(others, torch.inf)  # a power of 0
            positives, positive_weight = _positives(far, positive[0], len(unit), alpha, margin)
            # Excludes them from the negatives.
            exponent[positive] = -torch.inf if others is None else similar.where(others, -torch.inf)
            negatives, powers, weight = _negatives(exponent, alpha, margin)
            value += positives / present + negatives / classes
            weight *= alpha / classes
            positive_weight = positive_weight.mul_(-alpha / present) / weight[positive[0], 0]
            if others is not None:
                positive_weight = powers[positive].where(others, positive_weight)
            powers[positive] = positive_weight
            # `weight` scales the (rows, D) matrices, because (rows, B) is larger.
            if embedding_gradient is not None:
                embedding_gradient.addmm_(powers.T, unit * weight)
            if proxy_gradient is not None:
                gradient = torch.mm(powers, embeddings, out=proxy_gradient[rows]).mul_(weight)
                along = torch.linalg.vecdot(gradient, unit).unsqueeze_(1)  # component along the proxy
                gradient.addcmul_(unit, along, value=-1).mul_(inverse[rows])
        ctx.save_for_backward(embedding_gradient, proxy_gradient)
        return value


def _safe(alpha: float, margin: float) -> bool:
    """Whether the powers of all cosines fit float32, which is true for all published constants."""
    return alpha / _LOG_2 * (1 + abs(margin)) <= _SAFE


def _positives(
    exponent: Tensor, proxy: Tensor, proxies: int, alpha: float, margin: float
) -> tuple[Tensor, Tensor]:
    """The sum over `proxies` of log(1 + sum exp(-alpha (s - delta))), and exp(..) / (1 + sum) of each pair.

    exponent: alpha s / log 2 of each sample with the proxy of its class. proxy: the number of this proxy.
    """
    exponent = alpha * margin / _LOG_2 - exponent
    if _safe(alpha, margin):
        powers = exponent.exp2_()
        above = exponent.new_zeros(proxies).index_add_(0, proxy, powers)
        return above.log1p().sum(), powers.div_(above.add_(1).index_select(0, proxy))
    # The largest exponent of a proxy, at least 0.
    shift = exponent.new_zeros(proxies).scatter_reduce_(0, proxy, exponent, "amax")
    powers = exponent.sub_(shift.index_select(0, proxy)).exp2_()
    above = torch.expm1(shift * -_LOG_2).index_add_(0, proxy, powers)  # (1 + sum) 2^-shift - 1
    value = above.log1p().add_(shift, alpha=_LOG_2).sum()
    return value, powers.div_(above.add_(1).index_select(0, proxy))


def _negatives(exponent: Tensor, alpha: float, margin: float) -> tuple[Tensor, Tensor, Tensor]:
    """The sum over rows of log(1 + sum exp(alpha (s + delta))), and the factors of exp(..) / (1 + sum).

    The factors are powers and one weight per row. exponent: rows of alpha s / log 2, overwritten. Powers of
    two are used because torch's exp is slow for tiny results and its exp2 is not.
    """
    bias = alpha * margin / _LOG_2
    if _safe(alpha, margin):
        above = exponent.exp2_().sum(1, keepdim=True).mul_(2**bias)
        return above.log1p().sum(), exponent, above.add_(1).reciprocal_().mul_(2**bias)
    shift = exponent.amax(1, keepdim=True).add_(bias).clamp_(min=0)  # the largest exponent, at least 0
    above = exponent.sub_(shift - bias).exp2_().sum(1, keepdim=True)
    above.add_(torch.expm1(shift * -_LOG_2))  # (1 + sum) 2^-shift - 1
    return above.log1p().add_(shift, alpha=_LOG_2).sum(), exponent, above.add_(1).reciprocal_()
