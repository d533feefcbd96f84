"""Maximum plus generalized sum pooling with a common transform: v = W max_p f_p + sum_j p_j W f_j.

(GMP + GSP of the GSP paper; released code.)
"""

from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import positions
from unseen.poolings.projected_gsp import ProjectedGsp


class MaxGsp(ProjectedGsp):
    """The sum of both, as in the released TensorFlow code.

    Its PyTorch code uses the maximum of the weighted features.

    Until the prototypes are initialised it is maximum plus average pooling.
    """

    def forward(
        self, features: Float[Tensor, "B L H W"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B M"], Float[Tensor, "B D"]]:
        """As ProjectedGsp. The first of equal maxima receives the gradient."""
        pooled, attributes, average = super().forward(features)
        maximum = positions(features).max(2).values
        return pooled + self.transform.vectors(maximum), attributes, average
