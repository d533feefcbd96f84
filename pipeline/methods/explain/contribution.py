"""The contribution of each position to a similarity, for any method.

With the feature map f (P positions, L channels), the embedding z(f) and a reference r, both of unit norm, the
similarity is s = <z, r>. The contribution of position j is its first-order term

    c_j = < f_j, d<z, r> / df_j >

in which every norm that divides a vector, and every standard deviation of a layer norm, is held constant. By
Euler's theorem sum_j c_j = s if the head is then homogeneous of degree 1 in f: average, maximum or
generalized mean pooling, followed by a linear layer without bias. A bias b adds the constant <b, r> / ||v||,
with v the vector before its normalisation. For average pooling c_j = <W f_j, r> / (P ||v||) is the exact
decomposition (Stylianou et al. 2019, "Visualizing deep similarity networks"). For other heads (CRT, attention
of positions) the sum differs from s.

Contributions are negative where a position lowers the similarity.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from unseen.methods.explain.weights import PositionWeights
from unseen.methods.method import Method
from unseen.networks.backbone import Features

NAME = "contribution"


def contributions(
    method: Method, images: Float[Tensor, "B 3 H W"], references: Float[Tensor, "B D"] | None = None
) -> PositionWeights | None:
    """The contribution of each position of each image to its similarity with the reference of that image.

    references: unit rows; None: the embeddings of the images, whose similarity is 1. Several maps of a
    backbone (Multi-Head) are added on the grid of the largest one, on which a coarse position divides its
    contribution by area. None if the embedding depends on no map, as with a class token. The method must be
    in eval mode. Raises NotNormalised if `functional.normalize` did not compute the embedding (`unit` of
    pipeline/methods/method.py does), because its norm would then not be constant. Other vectors may be
    normalised, too.
    """
    norms = ConstantNorms()

    def start(module: Any, arguments: Any, output: Features) -> Features:
        return Features(norms.start(output.maps), None if output.cls is None else output.cls.detach())

    hook = method.backbone.register_forward_hook(start)
    try:
        with torch.enable_grad(), norms:
            embedding = method.describe(images).embedding
    finally:
        hook.remove()
    if not any(torch.equal(vectors, embedding) for vectors in norms.units):
        raise NotNormalised(
            f"{type(method).__name__} returns an embedding that `unit` did not normalise: its positions have "
            "no contributions."
        )
    gradients = norms.gradients(embedding, embedding if references is None else references)
    used = [
        (features.detach() * gradient).sum(1)
        for features, gradient in zip(norms.maps, gradients, strict=True)
        if gradient is not None
    ]
    if not used:
        return None
    height, width = max((tuple(terms.shape[1:]) for terms in used), key=lambda size: size[0] * size[1])
    total = torch.stack([_spread(terms, height, width) for terms in used]).sum(0)
    return PositionWeights(NAME, total.flatten(1), height, width)


class NotNormalised(Exception):
    """The embedding of a method is not the result of a normalisation."""


class ConstantNorms(TorchFunctionMode):
    """Makes feature maps the leaves of the graph, and norms after them constants."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: tuple[Tensor, ...] = ()
        self.units: list[Tensor] = []  # the results of all normalisations

    def start(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The leaves, in place of `maps`."""
        self.maps = tuple(features.detach().requires_grad_() for features in maps)
        return self.maps

    def gradients(
        self, embedding: Float[Tensor, "B D"], references: Float[Tensor, "B D"]
    ) -> tuple[Tensor | None, ...]:
        """d <z, r> / df of each leaf; None for one on which z does not depend."""
        if not embedding.requires_grad:
            return (None,) * len(self.maps)
        with torch.enable_grad():
            similarity = (embedding * references.detach()).sum()
        return torch.autograd.grad(similarity, self.maps, allow_unused=True)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arguments = kwargs or {}
        if self.maps and func is functional.normalize:
            self.units.append(_divided_by_norm(*args, **arguments))
            return self.units[-1]
        if self.maps and func is functional.layer_norm:
            return _divided_by_deviation(*args, **arguments)
        return func(*args, **arguments)


def _divided_by_norm(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Tensor:
    """The value of `functional.normalize`, with a norm that has no gradient."""
    return x / x.detach().norm(p, dim, keepdim=True).clamp_min(eps)


def _divided_by_deviation(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """The value of `functional.layer_norm`, with a standard deviation that has no gradient."""
    axes = tuple(range(-len(shape), 0))
    deviation = (x.detach().var(axes, correction=0, keepdim=True) + eps).sqrt()
    normalised = (x - x.mean(axes, keepdim=True)) / deviation
    scaled = normalised if weight is None else normalised * weight
    return scaled if bias is None else scaled + bias


def _spread(terms: Float[Tensor, "B h w"], height: int, width: int) -> Float[Tensor, "B H W"]:
    """The terms on another grid over the same image; each is divided by area, so that the sum is equal."""
    rows, columns = (
        _overlap(source, target, terms)
        for source, target in zip(terms.shape[1:], (height, width), strict=True)
    )
    return rows @ terms @ columns.T


def _overlap(source: int, target: int, like: Tensor) -> Float[Tensor, "target source"]:
    """The share of each of `source` equal intervals of [0, 1] in each of `target` equal intervals."""
    ends = torch.arange(target + 1, device=like.device, dtype=torch.float64) / target * source
    first = torch.arange(source, device=like.device, dtype=torch.float64)
    upper, lower = torch.minimum(ends[1:, None], first + 1), torch.maximum(ends[:-1, None], first)
    return (upper - lower).clamp_min(0).to(like.dtype)
