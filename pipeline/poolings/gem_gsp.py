"""Generalized mean of features weighted by transport, then the transform.

(GeMean + GSP of the GSP paper; released code.)

    v = W ( 1/P sum_j max(P p_j f_j, 1e-6)^p )^(1/p)        p_j: weights of `gsp.py` for W f

The exponent p is learned, initially 3. P p_j is 1 if the position has the weight of an average.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.poolings.gem import Gem
from unseen.poolings.map_pooling import positions
from unseen.poolings.projected_gsp import ProjectedGsp


class GemGsp(ProjectedGsp):
    """Arguments: those of ProjectedGsp, and `exponent`.

    As in the released code, it is average pooling until the prototypes are initialised.
    """

    def __init__(self, channels: int, dim: int, *transport: Any, exponent: float = 3.0, **named: Any) -> None:
        super().__init__(channels, dim, *transport, **named)
        self.gem = Gem(channels, exponent)

    def forward(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B M"], Float[Tensor, "B D"]]:
        """As ProjectedGsp."""
        transformed = self.transform(features)
        summed, attributes, weights = self.gsp.transport(transformed)
        with torch.autocast(features.device.type, enabled=False):
            weighted = positions(features) * (weights.shape[1] * weights).unsqueeze(1)
            generalized = self.transform.vectors(self.gem(weighted.unsqueeze(3)))
        pooled = torch.where(self.gsp.initialized.clone(), generalized, summed)
        return pooled, attributes, positions(transformed.detach()).mean(2)
