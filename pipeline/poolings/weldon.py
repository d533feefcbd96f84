"""WELDON, per channel: the sum of the k largest and of the k smallest values over positions.

(Durand et al. 2016; released GSP code.)

    v_l = sum of the k_max largest of {x_lp}_p + sum of the k_min smallest
    x = W f without bias,   k_max = k_min = 3
"""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.map_pooling import Transform, positions


class Weldon(nn.Module):
    """Sums of extremes of the transformed features.

    Deviations: exactly k values are summed; the released code also adds all values that equal the k-th. On a
    map with fewer than k positions all are summed; there the released code fails. Raises ValueError for a
    negative count, and if both counts are 0.
    """

    projects = True

    def __init__(self, channels: int, dim: int, top: int = 3, bottom: int = 3) -> None:
        super().__init__()
        if top < 0 or bottom < 0 or top + bottom == 0:
            raise ValueError(
                f"WELDON: top and bottom must not be negative nor both 0, got {top} and {bottom}"
            )
        self.out_channels, self.top, self.bottom = dim, top, bottom
        self.transform = Transform(channels, dim)

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B D"]:
        """The pooled vectors, in float32 at least."""
        ordered = positions(self.transform(features)).sort(2, descending=True).values
        smallest = ordered[:, :, max(ordered.shape[2] - self.bottom, 0) :]
        return ordered[:, :, : self.top].sum(2) + smallest.sum(2)
