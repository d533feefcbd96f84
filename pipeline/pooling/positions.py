"""A feature map as the set of its positions, in single precision at least.

`single` equals `full_precision` of pipeline/losses/precision.py: losses and poolings do not import each
other.
"""

from jaxtyping import Float
from torch import Tensor


def positions(features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L P"]:
    """f_j in column j, in float32 at least: sums of hundreds of float16 values lose most of their digits."""
    return single(features.flatten(2))


def single(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The tensor in float32 if it has half precision, otherwise unchanged."""
    return tensor if tensor.element_size() >= 4 else tensor.float()
