"""R-MAC: the sum of the normalised maxima of regions at several scales.

(Tolias et al. 2016; Radenovic's released code.)

    v = sum_{r in regions} m_r / (||m_r|| + 1e-6)        m_r = max_{p in r} f_p

At level l = 1 .. L the regions are squares of side floor(2 min(H, W) / (l + 1)), evenly spaced, l along the
shorter side and l + m along the longer side; m is such that neighbours at level 1 overlap by about 40 %. As
in the released code, the whole map is one more region.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions
from unseen.runtime.device.precision import full_precision

_OVERLAP = 0.4
_MOST = 6  # additional regions along the longer side
_EPSILON = 1e-6


def regions(height: int, width: int, levels: int) -> list[tuple[int, int, int]]:
    """(top, left, side) of the square regions without the whole map. A level with side 0 has none."""
    short, long = min(height, width), max(height, width)

    def miss(additional: int) -> float:
        """The difference of the overlap of additional + 1 squares along the longer side from _OVERLAP."""
        return abs((short**2 - short * (long - short) / additional) / short**2 - _OVERLAP)

    extra = 0 if long == short else min(range(1, _MOST + 1), key=miss)
    squares = []
    for level in range(1, levels + 1):
        side = 2 * short // (level + 1)
        if side == 0:
            continue
        tops = _starts(height, side, level + extra * (height > width))
        lefts = _starts(width, side, level + extra * (width > height))
        squares += [(top, left, side) for top in tops for left in lefts]
    return squares


def _starts(length: int, side: int, count: int) -> list[int]:
    """The starts of `count` pieces of length `side` from one end to the other."""
    return [0] if count == 1 else [(length - side) * i // (count - 1) for i in range(count)]


class Rmac(MapPooling):
    """Regional maxima, normalised and summed.

    The sum is not normalised. One of equal maxima receives the gradient.
    """

    def __init__(self, channels: int, levels: int = 3) -> None:
        """levels: L. Raises ValueError below 1."""
        super().__init__(channels)
        if levels < 1:
            raise ValueError(f"R-MAC needs one level or more, got {levels}")
        self.levels = levels

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least."""
        features = full_precision(features)
        parts = [positions(features)]
        for top, left, side in regions(features.shape[2], features.shape[3], self.levels):
            parts.append(features[:, :, top : top + side, left : left + side].flatten(2))
        stacked = torch.stack([part.max(2).values for part in parts], dim=2)
        length = torch.linalg.vector_norm(stacked, dim=1, keepdim=True)
        return (stacked / (length + _EPSILON)).sum(2)
