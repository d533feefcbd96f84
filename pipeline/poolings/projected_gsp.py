"""Generalized sum pooling after a transform: x = W f, L -> D, then `gsp.py` on x (GSP sec. 4; released code).

Costs, prototypes and sums have D dimensions. Without `dim` there is no transform and D = L, as in the token
study of the released code.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from unseen.poolings.gsp import Gsp
from unseen.poolings.map_pooling import Transform, positions


class ProjectedGsp(nn.Module):
    """The pooling of the method GSP. Arguments after `dim` and exceptions are those of `Gsp`."""

    projects = True

    def __init__(self, channels: int, dim: int | None, *transport: Any, **named: Any) -> None:
        super().__init__()
        self.out_channels = channels if dim is None else dim
        self.transform: Any = nn.Identity() if dim is None else Transform(channels, dim)
        self.gsp = Gsp(self.out_channels, *transport, **named)

    def forward(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B M"], Float[Tensor, "B D"]]:
        """Pooled vectors, attributes, and the averages of the transformed features for `observe`.

        The averages have no gradient.
        """
        transformed = self.transform(features)
        pooled, attributes = self.gsp(transformed)
        return pooled, attributes, positions(transformed.detach()).mean(2)

    @property
    def has_prototypes(self) -> Bool[Tensor, ""]:
        """Whether prototypes were selected from pooled features; a copy."""
        return self.gsp.initialized.clone()

    def has_selected(self) -> bool:
        """As `has_prototypes`, read by the host once."""
        return self.gsp.has_selected()

    def observe(self, average: Float[Tensor, "B D"]) -> None:
        """Counts a training step with the averages of the global batch, from which prototypes are chosen."""
        self.gsp.observe(average)
