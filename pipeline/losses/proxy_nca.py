"""ProxyNCA++ (Teh et al. 2020): the probability of the class of a sample is a softmax over learned proxies.

    loss = 1/B sum_i -log( exp(-9 || z_i - p_{y_i} ||^2) / sum_c exp(-9 || z_i - p_c ||^2) )
    z, p: unit vectors

The factor 9 results from the released code, which multiplies unit vectors by 3. On unit vectors -9 d^2 = 18
cos - 18, and the constant cancels, so the loss is a softmax over proxies with scale 18. GSP's code uses the
scale 1 / 0.11 (its text: temperature 0.1). Unlike in the first ProxyNCA, the sum includes the proxy of the
sample's own class.
"""

from torch import nn

from unseen.losses.he_normal import he_normal_
from unseen.losses.proxy_softmax import ProxySoftmax

INITIALIZATIONS = ("normal_over_8", "he_normal")


class ProxyNca(ProxySoftmax):
    """scale: of the cosines, 18 as released.

    initialization: "normal_over_8" (released: N(0, 1) / 8) or "he_normal" (GSP's code).
    """

    def __init__(self, classes: int, dim: int, scale: float, initialization: str) -> None:
        super().__init__(classes, dim, scale)
        if initialization == "normal_over_8":
            nn.init.normal_(self.proxies, std=1 / 8)
        elif initialization == "he_normal":
            he_normal_(self.proxies)
        else:
            raise ValueError(
                f"initialization must be one of {', '.join(INITIALIZATIONS)}, got {initialization!r}"
            )
