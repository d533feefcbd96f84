"""Second-order attention pooling: the generalized mean of a map after self-attention.

(SOLAR, Ng et al. 2020; "SOAP" in the released GSP code.)

    v = GeM( attention(f) )        attention: the residual block x + v( softmax(q^T k) h )

The block is an argument, because it belongs to the architecture. GSP's configuration: reduction 1, scale 1 /
sqrt(L), exponent learned from 3, and the block of its code (networks/attention.py).
"""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.gem import Gem
from unseen.poolings.map_pooling import MapPooling


class SecondOrder(MapPooling):
    """attention: any module from a map to a map of the same shape."""

    def __init__(
        self, channels: int, attention: nn.Module, exponent: float = 3.0, learnable: bool = True
    ) -> None:
        super().__init__(channels)
        self.attention = attention
        self.gem = Gem(channels, exponent, learnable)

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        return self.gem(self.attention(features))
