"""DeLF: the average with weights of positions from a small attention network.

(Noh et al. 2017; a pooling in the released GSP code.)

    v = 1/P sum_p softplus( w . relu(W f_p + b) + c ) f_p        W (512, L)

As in the released code, the weights are not normalised: the length of v does not change a normalised
embedding.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from unseen.poolings.map_pooling import MapPooling, Transform, positions


class Delf(MapPooling):
    """Average with attention. hidden: width of the attention network.

    Glorot initialization with biases 0, as in the released code.
    """

    def __init__(self, channels: int, hidden: int = 512) -> None:
        super().__init__(channels)
        self.attention = nn.Sequential(
            Transform(channels, hidden, bias=True), nn.ReLU(), Transform(hidden, 1, bias=True)
        )

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        weights = softplus(positions(self.attention(features)))
        with torch.autocast(features.device.type, enabled=False):
            return torch.bmm(positions(features), weights.transpose(1, 2)).squeeze(2) / weights.shape[2]
