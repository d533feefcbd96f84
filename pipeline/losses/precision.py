"""Losses run in single precision at least: sums over thousands of exponentials do not survive bfloat16.

pipeline/pooling/positions.py has the same conversion: losses and poolings do not import each other.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def full_precision(values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """`values` in float32, or unchanged where they are float64 (so that gradients can be checked in double)."""
    return values if values.dtype == torch.float64 else values.float()


def without_autocast(values: Tensor) -> torch.autocast:
    """A context in which matrix products keep the precision of their operands, on the device of `values`."""
    return torch.autocast(values.device.type, enabled=False)
