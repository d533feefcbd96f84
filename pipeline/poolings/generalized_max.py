"""Generalized max pooling: the vector whose products with all features are 1 by ridge regression.

(Murray and Perronnin 2014.)

    v = argmin_x sum_j (f_j . x - 1)^2 + lambda ||x||^2 = F^T (F F^T + lambda I)^-1 1,    F (P, L): features

So frequent and rare features have equal weights. lambda = 1, as in the released GSP code.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from unseen.poolings.map_pooling import MapPooling, positions


class GeneralizedMax(MapPooling):
    """Ridge regression of 1 on the features of an image.

    Raises ValueError for a regularization that is not positive.
    """

    def __init__(self, channels: int, regularization: float = 1.0) -> None:
        super().__init__(channels)
        if regularization <= 0:
            raise ValueError(
                f"the regularization of generalized max pooling must be positive, got {regularization}"
            )
        self.regularization = regularization

    def forward(self, features: Float[Tensor, "B L H W"]) -> Float[Tensor, "B L"]:
        """The pooled vectors, in float32 at least, by Cholesky factors (released code: by an inverse).

        NaN for an image whose matrix has no factors, by rounding or because a feature is not finite: a
        training refuses NaN and names the image, and the host need not wait for the check.
        """
        with torch.autocast(features.device.type, enabled=False):
            flat = positions(features)
            gram = flat.transpose(1, 2) @ flat
            gram = gram + self.regularization * torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
            ones = gram.new_ones(len(gram), gram.shape[1], 1)
            root, failures = torch.linalg.cholesky_ex(gram)
            pooled = (flat @ torch.cholesky_solve(ones, root)).squeeze(2)
            return pooled.masked_fill((failures != 0)[:, None], torch.nan)
