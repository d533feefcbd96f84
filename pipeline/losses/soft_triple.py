"""SoftTriple loss (Qian et al. 2019): softmax over classes that have several centers each.

    loss = 1/B sum_i -log( e_i / (e_i + sum_{c != y} exp(lambda S_ic)) )      e_i = exp(lambda (S_iy - delta))
           + tau / (C K (K - 1)) sum_c sum_{k < l} sqrt(2 - 2 w_ck . w_cl)
    S_ic = sum_k softmax_k(z_i . w_ck / gamma) z_i . w_ck        w: unit vectors, K of each class, y = y_i

The second term lets centers of a class become equal, so that a class uses as many as it needs; it is 0 for
K = 1. As released, 1e-5 is added under its root.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.runtime.device.precision import full_precision, without_autocast

_EPSILON = 1e-5  # under the root of the distance of two centers (released code)


class SoftTriple(nn.Module):
    """The loss and its centers (C K, D), those of a class in consecutive rows.

    scale: lambda. temperature: gamma. margin: delta, a cosine. centers: K. center_weight: tau. Raises
    ValueError unless scale and temperature are positive.
    """

    inputs = "proxies"

    def __init__(
        self,
        classes: int,
        dim: int,
        scale: float,
        temperature: float,
        margin: float,
        centers: int,
        center_weight: float,
    ) -> None:
        super().__init__()
        if scale <= 0 or temperature <= 0:
            raise ValueError(f"expected a positive scale and temperature, got {scale}, {temperature}")
        self.scale, self.temperature, self.margin = scale, temperature, margin
        self.centers, self.center_weight = centers, center_weight
        self.proxies = nn.Parameter(torch.empty(classes * centers, dim))
        nn.init.uniform_(self.proxies, -(len(self.proxies) ** -0.5), len(self.proxies) ** -0.5)

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors, independent of the lengths of the centers.

        Raises RuntimeError for a label outside the classes (on a CPU).
        """
        with without_autocast(embeddings):
            samples, labels = full_precision(embeddings), labels.long()
            unit = functional.normalize(self.proxies.to(samples.dtype), dim=1)
            cosines = (samples @ unit.T).unflatten(1, (-1, self.centers))
            of_class = ((cosines / self.temperature).softmax(2) * cosines).sum(2)
            target = torch.zeros_like(of_class).scatter_(1, labels[:, None], self.margin)
            loss = functional.cross_entropy(self.scale * (of_class - target), labels)
            return loss + self.center_weight * self._spread(unit) if self.centers > 1 else loss

    def _spread(self, unit: Float[Tensor, "CK D"]) -> Float[Tensor, ""]:
        """Half the mean distance of two different centers of a class."""
        of_class = unit.unflatten(0, (-1, self.centers))
        first, second = torch.triu_indices(self.centers, self.centers, 1, device=unit.device)
        cosines = (of_class @ of_class.mT)[:, first, second]
        return (2 + _EPSILON - 2 * cosines).sqrt().mean() / 2
