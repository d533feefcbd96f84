"""Maximum pooling (MAC), per channel: v = max_p f_p over the positions of a map (Tolias et al. 2016)."""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.positions import positions


class Max(nn.Module):
    """The maximum over positions. The first of equal maxima receives the gradient."""

    projects = False

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.out_channels = channels

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        return positions(features).max(2).values
