"""Diversity of prototypes: different prototypes should be orthogonal (CRT sec. 3.2).

loss = 1/(M (M - 1)) sum_{k != j} | cos(c_k, c_j) |
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from unseen.runtime.device.precision import full_precision, without_autocast


def prototype_diversity(prototypes: Float[Tensor, "M L"]) -> Float[Tensor, ""]:
    """The mean over ordered pairs, in [0, 1]; 0 for a single prototype, which has no pair."""
    with without_autocast(prototypes):
        unit = functional.normalize(full_precision(prototypes), dim=1)
        count = len(unit)
        if count < 2:
            return (unit * 0).sum()
        cosines = (unit @ unit.T).abs()
        return (cosines.sum() - cosines.diagonal().sum()) / (count * (count - 1))


class Diversity(nn.Module):
    """`prototype_diversity` as a module."""

    forward = staticmethod(prototype_diversity)
