"""Average pooling: v = 1/P sum_p f_p over the positions of a map."""

from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions


class Average(MapPooling):
    """The mean over positions, in float32 at least."""

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors."""
        return positions(features).mean(2)
