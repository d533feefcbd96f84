"""Maximum pooling (MAC), per channel: v = max_p f_p over the positions of a map (Tolias et al. 2016)."""

from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions


class Max(MapPooling):
    """The maximum over positions. The first of equal maxima receives the gradient."""

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        return positions(features).max(2).values
