"""Focus layer of the single-head ablation of Multi-Head (sec. 4.5).

It folds a fine map and concatenates it with a coarse one:

    (B, L, 2H, 2W) -> (B, 4L, H, W)        fold[c * 4 + 2 i + j, y, x] = fine[c, 2y + i, 2x + j]

So 14 x 14 x 1024 and 7 x 7 x 2048 become 7 x 7 x 6144, the published size. The paper does not state the order
of the folded channels, which has no effect on the following linear layer.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class Focus(nn.Module):
    """Folds the map of `fine` channels 2 x 2 and concatenates the map of `coarse` channels.

    Raises ValueError if the fine map does not have twice the height and width of the coarse map.
    """

    def __init__(self, fine: int, coarse: int) -> None:
        super().__init__()
        self.out_channels = 4 * fine + coarse

    def forward(
        self, fine: Float[Tensor, "B L _ _"], coarse: Float[Tensor, "B M H W"]
    ) -> Float[Tensor, "B N H W"]:
        height, width = coarse.shape[2:]
        if fine.shape[2:] != (2 * height, 2 * width):
            raise ValueError(
                f"focus needs a fine map of {2 * height} x {2 * width} for a coarse map of "
                f"{height} x {width}, got {fine.shape[2]} x {fine.shape[3]}: choose two neighbouring stages, "
                "and an image size that is a multiple of the stride of the coarse map."
            )
        return torch.cat([functional.pixel_unshuffle(fine, 2), coarse], 1)
