"""Batches of unit vectors, and a record of the largest tensor of an operation."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode


def batch(
    count: int, classes: int, dim: int = 8, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Unit vectors around class centres, so wide that positives and negatives mix, with labels in random
    order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    points = centres[labels] + spread * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return normalize(points, dim=1), labels


def duplicates(count: int, dtype: torch.dtype) -> Tensor:
    """Copies of one unit vector, with a gradient."""
    generator = torch.Generator().manual_seed(0)
    vector = normalize(torch.randn(1, 100, dtype=torch.float64, generator=generator), dim=1).to(dtype)
    return vector.repeat(count, 1).requires_grad_()


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation creates."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result
