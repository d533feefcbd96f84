"""Focus layer of the single-head ablation of Multi-Head (sec. 4.5): a fine map is folded into the grid of a coarse one and laid beside it.

    (B, L, 2H, 2W) -> (B, 4L, H, W)        fold[c * 4 + 2 i + j, y, x] = fine[c, 2y + i, 2x + j]

So 14 x 14 x 1024 beside 7 x 7 x 2048 becomes 7 x 7 x 6144, the published number. The order of the folded channels is open; a linear layer follows,
to which it makes no difference.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Focus(nn.Module):
    """Folds the map of `fine` channels 2 x 2 and joins that of `coarse` channels. Raises ValueError where one is not twice as fine as the other."""

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.out_channels = 4 * fine + coarse

    def forward(self, fine: Float[Tensor, "B L _ _"], coarse: Float[Tensor, "B M H W"]) -> Float[Tensor, "B N H W"]:
        height, width = coarse.shape[2:]
        if fine.shape[2:] != (2 * height, 2 * width):
            raise ValueError(
                f"focus needs a fine map of {2 * height} x {2 * width} beside a coarse one of {height} x {width}, got "
                f"{fine.shape[2]} x {fine.shape[3]}: take two neighbouring stages and an image size that is a multiple of the coarse map's stride."
            )
        return torch.cat([functional.pixel_unshuffle(fine, 2), coarse], 1)
