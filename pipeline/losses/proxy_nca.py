"""ProxyNCA++ (Teh et al. 2020): each class is a learned proxy, a sample's probability of its class a softmax over all proxies.

    loss = 1/B sum_i -log( exp(-9 || z_i - p_{y_i} ||^2) / sum_c exp(-9 || z_i - p_c ||^2) )        z, p unit vectors

The released code multiplies unit vectors by 3, hence the 9. On unit vectors -9 d^2 = 18 cos - 18, and the 18 cancels: softmax over proxies at scale
18. GSP's code has the same at scale 1 / 0.11 (its text: temperature 0.1). The sum has the sample's own proxy in it, unlike the first ProxyNCA.
"""

from torch import nn

from pipeline.losses.he_normal import he_normal_
from pipeline.losses.proxy_softmax import ProxySoftmax

INITIALIZATIONS = ("normal_over_8", "he_normal")


class ProxyNca(ProxySoftmax):
    """scale: on cosines, 18 as released. initialization: "normal_over_8" (released: N(0, 1) / 8) or "he_normal" (GSP's code)."""

    def __init__(self, classes: int, dim: int, scale: float, initialization: str) -> None:
        super().__init__(classes, dim, scale)
        if initialization == "normal_over_8":
            nn.init.normal_(self.proxies, std=1 / 8)
        elif initialization == "he_normal":
            he_normal_(self.proxies)
        else:
            raise ValueError(f"proxies begin as one of {', '.join(INITIALIZATIONS)}, got {initialization!r}")
