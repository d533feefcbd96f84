"""The frame of a pooling of a feature map: its positions, and their transform to the embedding."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.runtime.device.precision import full_precision


class MapPooling(nn.Module):
    """(B, L, H, W) -> (B, E), E = `out_channels`: without a transform to the embedding, E = L."""

    projects = False

    def __init__(self, channels: int) -> None:
        """channels: L. A pooling without parameters accepts maps of any number."""
        super().__init__()
        self.out_channels = channels


def positions(features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L P"]:
    """f_j in column j, in float32 at least: sums of hundreds of float16 values lose most of their digits."""
    return full_precision(features.flatten(2))


class Transform(nn.Conv2d):
    """W f_j at every position j of a map, from L channels to D dimensions: a 1 x 1 convolution,
    Glorot-uniform (released GSP code). `vectors` applies the same W to pooled vectors."""

    def __init__(self, channels: int, dim: int, bias: bool = False) -> None:
        super().__init__(channels, dim, 1, bias=bias)
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def vectors(self, pooled: Float[Tensor, "B L"]) -> Float[Tensor, "B D"]:
        return functional.linear(pooled, self.weight.flatten(1), self.bias)
