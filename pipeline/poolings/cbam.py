"""CBAM: attention over channels, then over positions, then the average.

(Woo et al. 2018; a pooling in the released GSP code.)

    x = f * sigmoid( M(mean_p f) + M(max_p f) )
    v = 1/P sum_p x_p sigmoid( conv3x3 [max_l x_lp ; mean_l x_lp] )
    M(u) = W_2 relu(W_1 u), L -> L / reduction -> L, without bias

The convolution has no bias; its padding is zero.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import MapPooling, positions


class Cbam(MapPooling):
    """Average of features after both attentions.

    reduction: 1 in the released GSP configurations; 16 in CBAM and in the default of the released layer. As
    in GSP's code, the spatial convolution is 3 x 3 (CBAM: 7 x 7) and the initialization is Glorot's. Raises
    ValueError if `reduction` is larger than the number of channels.
    """

    def __init__(self, channels: int, reduction: int = 1) -> None:
        super().__init__(channels)
        inner = channels // reduction
        if inner < 1:
            raise ValueError(
                f"CBAM: the reduction {reduction} is larger than the number of channels, {channels}"
            )
        squeeze, expand = nn.Linear(channels, inner, bias=False), nn.Linear(inner, channels, bias=False)
        self.channel = nn.Sequential(squeeze, nn.ReLU(), expand)
        self.spatial = nn.Conv2d(2, 1, 3, padding=1, bias=False)
        for weight in (squeeze.weight, expand.weight, self.spatial.weight):
            nn.init.xavier_uniform_(weight)

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        flat = positions(features)
        attention = torch.sigmoid(self.channel(flat.max(2).values) + self.channel(flat.mean(2)))
        attended = features * attention[:, :, None, None]
        summary = torch.stack([attended.max(1).values, attended.mean(1)], dim=1)
        return positions(attended * torch.sigmoid(self.spatial(summary))).mean(2)
