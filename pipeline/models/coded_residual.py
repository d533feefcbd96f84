"""Coded residual transform of a feature map (CRT sec. 3.1).

With features x_j in R^L at the P positions of a map and prototypes c_k:

    r_k = sum_j softplus(x_j . c_k) (x_j - c_k)        f = (1/M) sum_k Gamma_k(r_k)

Gamma_k is a network of its own for each prototype, or one for all: linear, GELU, linear. The sum over positions is not divided by P, as in the text.

r is computed as A X - (A 1) C, with A = softplus(C X^T): the M x P x L differences x_j - c_k never exist. Of the forward pass only A, X and C
are kept, because softplus'(w) = 1 - exp(-softplus(w)).
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class CodedResidualTransform(nn.Module):
    """(B, L, H, W) -> (B, D): `prototypes` perspectives M, embedding `dim` D, `hidden` width of each prototype's network.

    `prototypes` are the weight rows of the paper's one-layer prototype network; it has no bias, since w_kj is the plain dot product. They and
    every Gamma_k start as torch starts a Linear of that fan-in (the paper does not say). The biases of the M last layers act through their mean
    alone, so there is one. `shared_network`: one Gamma for all prototypes, the "same embedding network" of table 7.
    """

    def __init__(self, channels: int, prototypes: int, dim: int, hidden: int, shared_network: bool = False) -> None:
        super().__init__()
        networks = 1 if shared_network else prototypes
        self.prototypes = _uniform((prototypes, channels), channels)
        # (M, in, out): the layout that batched products read without a copy, in both directions. Biases are flat, as optimizers know them.
        self.first_weight = _uniform((networks, channels, hidden), channels)
        self.first_bias = _uniform((networks * hidden,), channels)
        self.second_weight = _uniform((networks, hidden, dim), hidden)
        self.second_bias = nn.Parameter(_uniform((networks, dim), hidden).detach().mean(0))

    def forward(self, features: Float[Tensor, "B L H W"], dim: int | None = None) -> Float[Tensor, "B D"]:
        """`dim`: the first so many values of the embedding alone; None: all."""
        wide = features.float() if features.dtype in (torch.float16, torch.bfloat16) else features
        with torch.autocast(features.device.type, enabled=False):  # softplus of a dot product over L, summed over P: not in half precision
            residuals = coded_residuals(wide.flatten(2), self.prototypes)
        networks = len(self.first_weight)
        if networks == 1:
            # One Gamma: its last layer is linear, so the mean over the prototypes goes before it.
            hidden = functional.gelu(torch.addmm(self.first_bias, residuals.flatten(0, 1), self.first_weight[0]))
            side_by_side = hidden.unflatten(0, residuals.shape[:2]).mean(1)
        else:
            bias = self.first_bias.view(networks, 1, -1)
            hidden = functional.gelu(torch.baddbmm(bias, residuals.transpose(0, 1), self.first_weight))
            # The mean of M linear maps is one linear map of the M hidden vectors side by side: M x B x D values less. Divided is the vector, which
            # is smaller than the gradient of the map.
            side_by_side = hidden.transpose(0, 1).flatten(1) / networks
        # A slice, even of everything, costs a copy of the gradient.
        bias, weight = (self.second_bias, self.second_weight) if dim is None else (self.second_bias[:dim], self.second_weight[..., :dim])
        return torch.addmm(bias, side_by_side, weight.flatten(0, 1))


class CodedResidualBranches(nn.Module):
    """The branches of CRT (sec. 3.3): (B, L, H, W) -> one embedding (B, D_b) per branch b, of `prototypes` M_b, `dims` D_b and `hidden` widths h_b.

    Not `shared`: transforms that have nothing in common (tables 8 and 10, "w/o").
    `shared` (tables 6, 7, 9 and 10, "w"): the text shares the weights of branches whose dimensions differ, so what they share is read as the
    prototypes and the first layer of every Gamma_k; the last layer is each branch's own. Two linear layers over one input are one layer of D_1 + D_2
    columns, and as such they are kept. With one prototype and one network this stays true.

    Raises ValueError where shared branches differ in prototypes or hidden width, or the three tuples in length.
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
            raise ValueError(f"coded residual branches: prototypes {prototypes}, dims {dims} and hidden {hidden} must name the same branches.")
        if shared and (len(set(prototypes)) > 1 or len(set(hidden)) > 1):
            raise ValueError(
                f"coded residual branches that share their weights need the same prototypes and hidden width, got prototypes {prototypes} and "
                f"hidden {hidden}: set them equal, or do not share the branches."
            )
        self.dims, self.shared = dims, shared
        wanted = [(prototypes[0], sum(dims), hidden[0])] if shared else list(zip(prototypes, dims, hidden, strict=True))
        self.transforms = nn.ModuleList(CodedResidualTransform(channels, count, dim, width, shared_network) for count, dim, width in wanted)

    @property
    def prototypes(self) -> tuple[Float[Tensor, "M L"], ...]:
        """The prototypes of each branch; of shared branches the same parameter once per branch."""
        sets: list[Tensor] = [transform.get_parameter("prototypes") for transform in self.transforms]
        return tuple(sets * len(self.dims) if self.shared else sets)

    def forward(self, features: Float[Tensor, "B L H W"], branches: int | None = None) -> tuple[Float[Tensor, "B _"], ...]:
        """The embeddings of the first `branches` branches, of all where it is None; the others cost nothing."""
        dims = self.dims[:branches]
        if self.shared:
            return self.transforms[0](features, sum(dims) if dims != self.dims else None).split(dims, 1)
        return tuple(transform(features) for transform in self.transforms[: len(dims)])


def coded_residuals(features: Float[Tensor, "B L P"], prototypes: Float[Tensor, "M L"]) -> Float[Tensor, "B M L"]:
    """r_k = sum_j softplus(x_j . c_k) (x_j - c_k). Time 4 B M P L operations; memory beyond the result B M P values."""
    return _CodedResiduals.apply(features, prototypes)


class _CodedResiduals(torch.autograd.Function):
    """With G = dloss/dR, s = A 1 and E = (G X - (G . C) 1^T) * (1 - exp(-A)):   dX = A^T G + E^T C,   dC = E X - s G summed over the batch.

    Sums and products are accumulated in place: a temporary of the size of R costs as much as one of the matrix products.
    """

    @staticmethod
    def forward(ctx: Any, features: Tensor, prototypes: Tensor) -> Tensor:
        weights = functional.softplus(torch.bmm(prototypes.expand(len(features), -1, -1), features))  # A: (B, M, P); `@` would copy the features
        ctx.save_for_backward(features, prototypes, weights)
        return (weights @ features.transpose(1, 2)).addcmul_(weights.sum(2, keepdim=True), prototypes, value=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        features, prototypes, weights = ctx.saved_tensors
        own = (gradient * prototypes).sum(2, keepdim=True)  # G . C: (B, M, 1)
        inner = torch.baddbmm(own, gradient, features, alpha=-1)  # both factors of E with their signs turned
        inner *= torch.neg(weights).expm1_()
        to_features = to_prototypes = None
        if ctx.needs_input_grad[0]:
            to_features = torch.bmm(prototypes.T.expand(len(features), -1, -1), inner).baddbmm_(gradient.transpose(1, 2), weights)
        if ctx.needs_input_grad[1]:
            total = weights.sum(2).T[:, None]  # s: (M, 1, B)
            to_prototypes = torch.addbmm((total @ gradient.transpose(0, 1))[:, 0], inner, features.transpose(1, 2), beta=-1)
        return to_features, to_prototypes


def _uniform(shape: tuple[int, ...], fan_in: int) -> nn.Parameter:
    bound = 1 / math.sqrt(fan_in)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
