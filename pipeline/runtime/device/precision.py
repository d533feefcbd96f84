"""Sums and similarities are computed in float32 at least.

bfloat16 is too coarse for sums over hundreds of positions or thousands of exponentials.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def full_precision(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`values` in float32, or unchanged if they are float64, in which tests check gradients."""
    return values if values.dtype == torch.float64 else values.float()


def without_autocast(values: Tensor) -> torch.autocast:
    """A context without autocast, in which products have the precision of their operands."""
    return torch.autocast(values.device.type, enabled=False)
