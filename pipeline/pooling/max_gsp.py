"""Maximum plus generalized sum pooling, under one transform: v = W max_p f_p + sum_j p_j W f_j (GMP + GSP of the GSP paper; released code)."""

from jaxtyping import Float
from torch import Tensor

from pipeline.pooling.positions import positions
from pipeline.pooling.projected_gsp import ProjectedGsp


class MaxGsp(ProjectedGsp):
    """The sum of both, as in the released TensorFlow code; its PyTorch code takes the maximum of the weighted features instead.

    Until the prototypes are initialised it is maximum plus average.
    """

    def forward(self, features: Float[Tensor, "B L H W"]) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B M"], Float[Tensor, "B D"]]:
        """As ProjectedGsp. Of equal maxima the first receives the gradient."""
        pooled, attributes, average = super().forward(features)
        return pooled + self.transform.vectors(positions(features).max(2).values), attributes, average
