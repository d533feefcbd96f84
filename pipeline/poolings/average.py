"""Average pooling: v = 1/P sum_p f_p over the positions of a map."""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.poolings.positions import positions


class Average(nn.Module):
    """The mean over positions, in float32 at least."""

    projects = False

    def __init__(self, channels: int) -> None:
        """channels: the value of `out_channels`. The layer accepts any number."""
        super().__init__()
        self.out_channels = channels

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors."""
        return positions(features).mean(2)
