"""Batches of unit vectors, and the largest tensor that an operation made."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode


def batch(
    count: int, classes: int, dim: int = 8, spread: float = 1.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Unit vectors around class centres, wide enough that positives and negatives mix, and labels in no
    order."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    points = centres[labels] + spread * torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return normalize(points, dim=1), labels


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.numel = max(self.numel, result.numel())
        return result
