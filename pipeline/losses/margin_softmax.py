"""Softmax over proxies with an additive margin at the target: CosFace and ArcFace.

    loss = 1/B sum_i -log( exp(s f(t_i)) / (exp(s f(t_i)) + sum_{c != y_i} exp(s cos(z_i, p_c))) )

t_i = cos(z_i, p_{y_i}) is the cosine of the target, s the scale.

    CosFace (Wang et al. 2018, eq. 4)    f(t) = t - m
    ArcFace (Deng et al. 2019, eq. 3)    f(t) = cos(arccos(t) + m)    if arccos(t) + m <= pi
                                         f(t) = t - m sin(m)          otherwise

The second line of ArcFace is that of an early revision of the authors' code (insightface 2e2e8c9, easy_margin
off): cos(arccos(t) + m) rises again beyond pi. Deviation: its later revision be22fa8 has no second line, and
its gradient is that of f(t) = t + constant. Proxies start normal with standard deviation 0.01, as there; only
their directions matter.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.runtime.device.precision import full_precision, without_autocast

_LEAST_SINE = 1e-12  # of a squared sine: the gradient of its root is finite at a cosine of 1


class MarginSoftmax(nn.Module, ABC):
    """The loss and its proxies (C, D). scale: s. margin: m. Raises ValueError for a scale that is not
    positive or a margin outside of [0, limit).
    """

    inputs = "proxies"
    limit: float

    def __init__(self, classes: int, dim: int, scale: float, margin: float) -> None:
        super().__init__()
        if scale <= 0 or not 0 <= margin < self.limit:
            raise ValueError(
                f"expected a positive scale and a margin from 0 to below {self.limit:.3g}, got {scale}, "
                f"{margin}"
            )
        self.scale, self.margin = scale, margin
        self.proxies = nn.Parameter(torch.empty(classes, dim))
        nn.init.normal_(self.proxies, std=0.01)

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors, independent of the lengths of the proxies.

        Raises RuntimeError for a label outside the classes (on a CPU).
        """
        return self.loss(embeddings, labels, self.proxies)

    def loss(
        self,
        embeddings: Float[Tensor, "B D"],
        labels: Int[Tensor, "B"],
        proxies: Float[Tensor, "S D"],
    ) -> Float[Tensor, ""]:
        """The loss over some proxies; `labels` are positions among them."""
        with without_autocast(embeddings):
            samples = full_precision(embeddings)
            cosines = samples @ functional.normalize(proxies.to(samples.dtype), dim=1).T
            labels = labels.long()[:, None]
            shifted = self.shifted(cosines.gather(1, labels))
            return functional.cross_entropy(self.scale * cosines.scatter(1, labels, shifted), labels[:, 0])

    @abstractmethod
    def shifted(self, target: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
        """f(t) of the cosines of the targets."""


class CosFace(MarginSoftmax):
    """margin: m, a difference of cosines."""

    limit = 2.0

    def shifted(self, target: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
        return target - self.margin


class ArcFace(MarginSoftmax):
    """margin: m, an angle in radians."""

    limit = math.pi

    def shifted(self, target: Float[Tensor, "B 1"]) -> Float[Tensor, "B 1"]:
        sine = (1 - target.square()).clamp(min=_LEAST_SINE).sqrt()
        rotated = target * math.cos(self.margin) - sine * math.sin(self.margin)
        beyond = target - self.margin * math.sin(self.margin)
        return torch.where(target >= math.cos(math.pi - self.margin), rotated, beyond)
