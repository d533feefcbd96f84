"""Average plus maximum pooling, per channel: v = 1/P sum_p f_p + max_p f_p.

(Multi-Head sec. 3.2; Proxy-Anchor's code.)
"""

from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions


class AverageMax(MapPooling):
    """The sum of the mean and the maximum over positions, in float32 at least.

    The first of equal maxima receives the gradient.
    """

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors."""
        flat = positions(features)
        return flat.mean(2) + flat.max(2).values
