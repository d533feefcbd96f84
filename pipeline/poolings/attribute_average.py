"""Average pooling with attributes by softmax instead of transport.

(Rows "without GSP" in table 1 of the GSP paper; MetaGlobalPooling in its code.)

    v = 1/P sum_j x_j      z = 1/P sum_j softmax( scale V xbar_j )
    x = W f, L -> D,  xbar = x / max(1, ||x||),  V (M, D),  scale = 10

The transport layer at mu = 1 has the same pooled vector but other attributes.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import Transform, positions
from unseen.poolings.unit_ball import clip


class AttributeAverage(nn.Module):
    """Bias-free W and V, Glorot-uniform, as in the released code."""

    projects, has_prototypes = True, True

    def __init__(self, channels: int, dim: int, prototypes: int = 64, scale: float = 10.0) -> None:
        super().__init__()
        self.out_channels, self.scale = dim, scale
        self.transform = Transform(channels, dim)
        self.prototypes = nn.Parameter(nn.init.xavier_uniform_(torch.empty(prototypes, dim)))

    def forward(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B M"], Float[Tensor, "B D"]]:
        """Pooled vectors, attributes that sum to 1, and the pooled vectors without gradient.

        All are in float32 at least.
        """
        transformed = positions(self.transform(features))
        with torch.autocast(features.device.type, enabled=False):
            rows, _ = clip(transformed.transpose(1, 2))
            attributes = (self.scale * rows @ self.prototypes.to(rows.dtype).T).softmax(2).mean(1)
            pooled = transformed.mean(2)
            return pooled, attributes, pooled.detach()

    def has_selected(self) -> bool:
        """V needs no selection."""
        return True

    def observe(self, average: Float[Tensor, "B D"]) -> None:
        """Does nothing: V is not initialised from features."""
