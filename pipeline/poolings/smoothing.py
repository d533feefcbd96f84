"""Norm-weighted smoothing, the trainable selective match kernel.

(Tolias et al. 2020, HOW; "NAP" in the released GSP code.)

    v = 1/P sum_p ||f_p|| ( W fbar_p + b )        fbar_p: mean of the 3 x 3 neighbours of p inside the map

As in the released code, ||f_p|| is a weight without gradient. W, b: the transform to D; its bias is weighted
too.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from unseen.poolings.map_pooling import Transform, positions
from unseen.runtime.device.precision import full_precision


class Smoothing(nn.Module):
    """Average of smoothed, transformed features, weighted by the norm before smoothing.

    The released code transforms every position and then averages. Both are linear, so here the average is
    first. window: odd side of the neighbourhood; at the border only neighbours inside the map count ("same"
    average pooling of Keras). Raises ValueError for an even window.
    """

    projects = True

    def __init__(self, channels: int, dim: int, window: int = 3) -> None:
        super().__init__()
        if window < 1 or window % 2 == 0:
            raise ValueError(f"the window of smoothing must be odd, got {window}")
        self.out_channels, self.window = dim, window
        self.transform = Transform(channels, dim, bias=True)

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B D"]:
        """The pooled vectors, in float32 at least."""
        with torch.autocast(features.device.type, enabled=False):
            features = full_precision(features)
            smooth = avg_pool2d(
                features, self.window, stride=1, padding=self.window // 2, count_include_pad=False
            )
            norm = torch.linalg.vector_norm(features.detach().flatten(2), dim=1)
            weighted = torch.bmm(positions(smooth), norm.unsqueeze(2)).squeeze(2) / norm.shape[1]
            linear = weighted @ self.transform.weight.flatten(1).T
            return linear + norm.mean(1, keepdim=True) * self.transform.bias
