"""Average plus maximum pooling, per channel: v = 1/P sum_p f_p + max_p f_p.

(Multi-Head sec. 3.2; Proxy-Anchor's code.)
"""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.positions import positions


class AverageMax(nn.Module):
    """The sum of the mean and the maximum over positions, in float32 at least.

    The first of equal maxima receives the gradient.
    """

    projects = False

    def __init__(self, channels: int) -> None:
        """channels: the value of `out_channels`. The layer accepts any number."""
        super().__init__()
        self.out_channels = channels

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors."""
        flat = positions(features)
        return flat.mean(2) + flat.max(2).values
