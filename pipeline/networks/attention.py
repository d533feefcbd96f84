"""Second-order attention over the positions of a feature map (SOLAR; Multi-Head eq. 1-3)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.batch_norm import SynchronisedBatchNorm


class SecondOrderAttention(nn.Module):
    """x + v( softmax(zeta f(x)^T g(x)) h(x) ), with the softmax over the columns of the P x P matrix.

    f, g: 1 x 1 convolution L -> L / reduction, batch norm, ReLU; h: 1 x 1 convolution L -> L / reduction; v:
    1 x 1 convolution back to L, initially zero, so that the block starts as the identity.

    `scale` is zeta. None is 1 / sqrt(L / reduction), as in SOLAR's code; Multi-Head sets 1, which makes the
    softmax nearly one-hot for hundreds of channels. Batch norm and ReLU are from SOLAR; the text of
    Multi-Head does not mention them. Raises ValueError if `reduction` is larger than the number of channels.
    """

    def __init__(self, channels: int, reduction: int, scale: float | None = None) -> None:
        super().__init__()
        inner = channels // reduction
        if inner < 1:
            raise ValueError(
                f"second-order attention: the reduction {reduction} exceeds the {channels} channels"
            )
        self.f, self.g = (_projection(channels, inner) for _ in range(2))
        self.h = _convolution(channels, inner)
        self.v = nn.Conv2d(inner, channels, 1)
        self.scale = inner**-0.5 if scale is None else scale
        with torch.no_grad():
            for parameter in self.v.parameters():
                parameter.zero_()

    def forward(self, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L H W"]:
        f, g, h = (branch(x).flatten(2) for branch in (self.f, self.g, self.h))
        attention = torch.softmax(self.scale * (f.transpose(1, 2) @ g), dim=-1)
        attended = h @ attention.transpose(1, 2)
        return x + self.v(attended.unflatten(2, x.shape[2:]))


class GspSecondOrderAttention(SecondOrderAttention):
    """The block of the released GSP code (pooling SOAP): the same formula with scale 1 / sqrt(L / reduction).
    Batch norm has the constants of Keras, eps 1e-3 and momentum 0.01 in torch's convention. All four
    convolutions start Glorot-uniform, so that the block does not start as the identity."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__(channels, reduction)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_uniform_(module.weight)
            elif isinstance(module, SynchronisedBatchNorm):
                module.eps, module.momentum = 1e-3, 0.01


def _convolution(channels: int, inner: int) -> nn.Conv2d:
    convolution = nn.Conv2d(channels, inner, 1)
    nn.init.kaiming_normal_(convolution.weight)
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    return convolution


def _projection(channels: int, inner: int) -> nn.Sequential:
    return nn.Sequential(_convolution(channels, inner), SynchronisedBatchNorm(inner), nn.ReLU())
