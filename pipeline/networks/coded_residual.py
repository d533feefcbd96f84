"""Coded residual transform of a feature map (CRT sec. 3.1).

With features x_j in R^L at the P positions of a map and prototypes c_k:

    r_k = sum_j softplus(x_j . c_k) (x_j - c_k)        f = (1/M) sum_k Gamma_k(r_k)

Gamma_k is a network (linear, GELU, linear) for each prototype, or one network for all. As in the text, the
sum over positions is not divided by P.

r is computed as A X - (A 1) C, with A = softplus(C X^T), so that the M x P x L differences x_j - c_k need no
memory. The backward pass needs only A, X and C, because softplus'(w) = 1 - exp(-softplus(w)).
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from unseen.runtime.device.precision import full_precision, without_autocast


class CodedResidualTransform(nn.Module):
    """(B, L, H, W) -> (B, D). `prototypes`: M. `dim`: D. `hidden`: width of the network of each prototype.

    The parameter `prototypes` contains the weights of the paper's one-layer prototype network, which has no
    bias because w_kj is the dot product. It and every Gamma_k are initialised as torch initialises a Linear
    with that fan-in (the paper does not state it). Only the mean of the biases of the M last layers has an
    effect, so there is one bias. `shared_network`: one Gamma for all prototypes, the "same embedding network"
    of table 7.
    """

    def __init__(
        self, channels: int, prototypes: int, dim: int, hidden: int, shared_network: bool = False
    ) -> None:
        super().__init__()
        networks = 1 if shared_network else prototypes
        self.prototypes = _uniform((prototypes, channels), channels)
        # (M, in, out): the layout that batched products read without a copy, in both directions. Biases are
        # flat, because optimizers recognise them by their one axis.
        self.first_weight = _uniform((networks, channels, hidden), channels)
        self.first_bias = _uniform((networks * hidden,), channels)
        self.second_weight = _uniform((networks, hidden, dim), hidden)
        self.second_bias = nn.Parameter(_uniform((networks, dim), hidden).detach().mean(0))

    def forward(self, features: Float[Tensor, "B L H W"], dim: int | None = None) -> Float[Tensor, "B D"]:
        """The first `dim` values of the embedding; None: all."""
        concatenated = self.hidden(features)
        last_bias: Tensor = self.second_bias
        last_weight: Tensor = self.second_weight
        if dim is not None:  # a slice, even of everything, costs a copy of the gradient
            last_bias, last_weight = last_bias[:dim], last_weight[..., :dim]
        return torch.addmm(last_bias, concatenated, last_weight.flatten(0, 1))

    def hidden(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B _"]:
        """What the last linear layer reads: the hidden vectors of the networks side by side, divided by their
        number."""
        wide = full_precision(features)
        # Half precision is too coarse for sums over P of softplus of dot products over L.
        with without_autocast(features):
            residuals = coded_residuals(wide.flatten(2), self.prototypes)
        networks = len(self.first_weight)
        if networks == 1:
            # The last layer of the one Gamma is linear, so the mean over the prototypes can be before it.
            hidden = functional.gelu(
                torch.addmm(self.first_bias, residuals.flatten(0, 1), self.first_weight[0])
            )
            return hidden.unflatten(0, residuals.shape[:2]).mean(1)
        bias = self.first_bias.view(networks, 1, -1)
        hidden = functional.gelu(torch.baddbmm(bias, residuals.transpose(0, 1), self.first_weight))
        # The mean of M linear maps is one linear map of the M concatenated hidden vectors, which saves M
        # x B x D values. The vectors are divided by M, because they are smaller than the gradient of the
        # map.
        return hidden.transpose(0, 1).flatten(1) / networks


class CodedResidualBranches(nn.Module):
    """The branches of CRT (sec. 3.3): (B, L, H, W) -> one embedding (B, D_b) per branch b.

    Branch b has `prototypes` M_b, `dims` D_b and `hidden` width h_b. Without `shared` the transforms are
    separate (tables 8 and 10, "w/o"). `shared` (tables 6, 7, 9 and 10, "w"): the text shares the weights of
    branches with different dimensions. This is implemented as common prototypes and a common first layer of
    every Gamma_k, with a separate last layer per branch. The last layers have the same input, so they are one
    layer with D_1 + D_2 columns.

    Raises ValueError if shared branches differ in prototypes or hidden width, or if the tuples differ in
    length.
    """

    def __init__(
        self,
        channels: int,
        prototypes: tuple[int, ...],
        dims: tuple[int, ...],
        hidden: tuple[int, ...],
        shared: bool = False,
        shared_network: bool = False,
    ) -> None:
        super().__init__()
        if not len(prototypes) == len(dims) == len(hidden) > 0:
            raise ValueError(
                f"coded residual branches: prototypes {prototypes}, dims {dims} and hidden {hidden} "
                "differ in length."
            )
        if shared and (len(set(prototypes)) > 1 or len(set(hidden)) > 1):
            raise ValueError(
                "shared coded residual branches need equal prototypes and hidden widths, got prototypes "
                f"{prototypes} and hidden {hidden}: set them equal, or do not share the branches."
            )
        self.dims, self.shared = dims, shared
        sizes = list(zip(prototypes, dims, hidden, strict=True))
        if shared:
            sizes = [(prototypes[0], sum(dims), hidden[0])]
        self.transforms = nn.ModuleList(
            CodedResidualTransform(channels, count, dim, width, shared_network) for count, dim, width in sizes
        )

    @property
    def prototypes(self) -> tuple[Float[Tensor, "M L"], ...]:
        """The prototypes of each branch; shared branches have the same parameter."""
        sets: list[Tensor] = [transform.get_parameter("prototypes") for transform in self.transforms]
        return tuple(sets * len(self.dims) if self.shared else sets)

    def forward(
        self, features: Float[Tensor, "B L H W"], branches: int | None = None
    ) -> tuple[Float[Tensor, "B _"], ...]:
        """The embeddings of the first `branches` branches; None: all. The others are not computed."""
        dims = self.dims[:branches]
        if self.shared:
            return self.transforms[0](features, sum(dims) if dims != self.dims else None).split(dims, 1)
        return tuple(transform(features) for transform in self.transforms[: len(dims)])


def coded_residuals(
    features: Float[Tensor, "B L P"], prototypes: Float[Tensor, "M L"]
) -> Float[Tensor, "B M L"]:
    """r_k = sum_j softplus(x_j . c_k) (x_j - c_k), in 4 B M P L operations and B M P values of memory."""
    return _CodedResiduals.apply(features, prototypes)


class _CodedResiduals(torch.autograd.Function):
    """The residuals with their gradient.

        dX = A^T G + E^T C,     dC = E X - s G summed over the batch
        G = dloss/dR,     s = A 1,     E = (G X - (G . C) 1^T) * (1 - exp(-A))

    Sums and products are accumulated in place, because a temporary of the size of R costs as much as a matrix
    product.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, prototypes: Tensor) -> Tensor:
        # A: (B, M, P). `@` would copy the features.
        weights = functional.softplus(torch.bmm(prototypes.expand(len(features), -1, -1), features))
        ctx.save_for_backward(features, prototypes, weights)
        return (weights @ features.transpose(1, 2)).addcmul_(
            weights.sum(2, keepdim=True), prototypes, value=-1
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        features, prototypes, weights = ctx.saved_tensors
        dot = (gradient * prototypes).sum(2, keepdim=True)  # G . C: (B, M, 1)
        inner = torch.baddbmm(dot, gradient, features, alpha=-1)  # both factors of E with opposite signs
        inner *= torch.neg(weights).expm1_()
        to_features = to_prototypes = None
        if ctx.needs_input_grad[0]:
            to_features = torch.bmm(prototypes.T.expand(len(features), -1, -1), inner)
            to_features.baddbmm_(gradient.transpose(1, 2), weights)
        if ctx.needs_input_grad[1]:
            total = weights.sum(2).T[:, None]  # s: (M, 1, B)
            weighted = (total @ gradient.transpose(0, 1))[:, 0]
            to_prototypes = torch.addbmm(weighted, inner, features.transpose(1, 2), beta=-1)
        return to_features, to_prototypes


def _uniform(shape: tuple[int, ...], fan_in: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
