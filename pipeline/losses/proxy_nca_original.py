"""The first ProxyNCA (Movshovitz-Attias et al. 2017): NCA with learned proxies of the classes.

    loss = 1/B sum_i -log( exp(-|| z_i - p_{y_i} ||^2) / sum_{c != y_i} exp(-|| z_i - p_c ||^2) )
    z, p: unit vectors

The sum excludes the proxy of the sample's own class, so that the value has no lower bound of 0; ProxyNCA++
(proxy_nca.py) includes it. On unit vectors -d^2 = 2 cos - 2, and the constant cancels: the scale is 2.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from unseen.losses.proxy_softmax import ProxySoftmax
from unseen.runtime.device.precision import full_precision, without_autocast


class OriginalProxyNca(ProxySoftmax):
    """scale: of the cosines. Raises ValueError for fewer than two classes."""

    def __init__(self, classes: int, dim: int, scale: float) -> None:
        if classes < 2:
            raise ValueError(f"ProxyNCA compares a class with others: expected 2 classes, got {classes}")
        super().__init__(classes, dim, scale)
        nn.init.normal_(self.proxies, std=1 / 8)

    def forward(self, embeddings: Float[Tensor, "B D"], labels: Int[Tensor, "B"]) -> Float[Tensor, ""]:
        """The loss of unit vectors, independent of the lengths of the proxies.

        Raises RuntimeError for a label outside the classes (on a CPU).
        """
        with without_autocast(embeddings):
            samples, own = full_precision(embeddings), labels.long()[:, None]
            logits = self.scale * (samples @ functional.normalize(self.proxies.to(samples.dtype), dim=1).T)
            others = logits.scatter(1, own, -torch.inf).logsumexp(1, keepdim=True)
            return (others - logits.gather(1, own)).mean()
