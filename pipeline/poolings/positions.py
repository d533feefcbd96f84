"""A feature map as the set of its positions, in single precision at least."""

from jaxtyping import Float
from torch import Tensor

from unseen.runtime.device.precision import full_precision


def positions(features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L P"]:
    """f_j in column j, in float32 at least: sums of hundreds of float16 values lose most of their digits."""
    return full_precision(features.flatten(2))
