"""Softmax over proxies: the function of ProxyNCA++ and of the normalised softmax.

Both differ only in the scale and in the initialization of the proxies.

    loss = 1/B sum_i -log( exp(scale cos(z_i, p_{y_i})) / sum_c exp(scale cos(z_i, p_c)) )

The gradient is dloss/dcos_ic = scale / B (softmax_ic - [c = y_i]).
"""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.losses.blocked import Blocked, block_size
from unseen.runtime.device.precision import full_precision, without_autocast

_EPSILON = 1e-12  # least length of a proxy
_CPU_ELEMENTS = 1 << 20  # similarities in memory at a time: they fit the last-level cache, for many samples
_LOG_2 = math.log(2)
_SAFE = 60.0  # largest exponent whose power of two fits float32, also summed over all classes
_LOWEST = -40.0  # lowest exponent whose reciprocal power can multiply such a sum


class ProxySoftmax(nn.Module):
    """The loss and its proxies (C, D), which a subclass initialises.

    scale: inverse temperature of the cosines.
    """

    inputs = "proxies"

    def __init__(self, classes: int, dim: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.proxies = nn.Parameter(torch.empty(classes, dim))

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors, independent of the lengths of the proxies.

        Raises RuntimeError for a label outside the classes (on a CPU).
        """
        with without_autocast(embeddings):
            samples = full_precision(embeddings)
            return _Blocked.apply(samples, self.proxies.to(samples.dtype), labels, self.scale)


class _Blocked(Blocked):
    """Value and gradient in one pass over blocks of samples.

    The sum over the proxies gives the probabilities of a sample.
    """

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, proxies: Tensor, labels: Tensor, scale: float) -> Tensor:
        batch, classes = len(embeddings), len(proxies)
        to_embeddings, to_proxies = ctx.needs_input_grad[:2]
        inverse = torch.linalg.vector_norm(proxies, dim=1, keepdim=True).clamp_(min=_EPSILON).reciprocal_()
        unit = proxies * inverse
        factor = scale / _LOG_2  # powers of two, because torch's exp is slow for tiny results and exp2 is not
        safe = abs(factor) <= _SAFE
        embedding_gradient = torch.empty_like(embeddings) if to_embeddings else None
        proxy_gradient = torch.zeros_like(proxies) if to_proxies else None
        step = block_size(embeddings, classes, _CPU_ELEMENTS)
        buffer = embeddings.new_empty(min(step, batch) * classes)
        total = embeddings.new_zeros(())
        for start in range(0, batch, step):
            rows = slice(start, start + step)
            block = embeddings[rows]
            out = buffer[: len(block) * classes].view(len(block), classes)
            powers = torch.mm(block * factor, unit.T, out=out)
            if not safe:
                powers.sub_(powers.amax(1, keepdim=True))
            target = powers.gather(1, labels[rows, None])
            sums = powers.exp2_().sum(1, keepdim=True)
            # log(sums / 2^target). The quotient is computed first: log2(sums) - target would lose the digits
            # of a small loss.
            low = target.clamp(min=_LOWEST)
            total += (sums * (-low).exp2_()).log2_().add_(low - target).clamp_(min=0).sum()
            # (softmax - [c = y]) sums. The division by `sums` is applied to the (B, D) matrices, which are
            # smaller.
            powers.scatter_add_(1, labels[rows, None], -sums)
            weight = sums.reciprocal().mul_(scale / batch)
            if embedding_gradient is not None:
                torch.mm(powers, unit, out=embedding_gradient[rows]).mul_(weight)
            if proxy_gradient is not None:
                proxy_gradient.addmm_(powers.T, block * weight)
        if proxy_gradient is not None:
            along = torch.linalg.vecdot(proxy_gradient, unit).unsqueeze_(1)  # component along the proxy
            proxy_gradient.addcmul_(unit, along, value=-1).mul_(inverse)
        ctx.save_for_backward(embedding_gradient, proxy_gradient)
        return total * (_LOG_2 / batch)
