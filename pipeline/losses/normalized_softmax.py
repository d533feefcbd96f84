"""Normalised softmax: classification by unit embeddings and unit class weights.

(Zhai and Wu 2018, "NSoftmax".)

    loss = 1/B sum_i -log( exp(cos(z_i, w_{y_i}) / T) / sum_c exp(cos(z_i, w_c) / T) )

It is the function of ProxyNCA++ with scale 1 / T. Released: T = 0.05, weights uniform in +-1 / sqrt(D).
"""

from torch import nn

from unseen.losses.proxy_softmax import ProxySoftmax


class NormalizedSoftmax(ProxySoftmax):
    """temperature: T of the cosines. Raises ValueError if it is not positive."""

    def __init__(self, classes: int, dim: int, temperature: float) -> None:
        if temperature <= 0:
            raise ValueError(f"the temperature of a softmax must be positive, got {temperature}")
        super().__init__(classes, dim, 1 / temperature)
        nn.init.uniform_(self.proxies, -(dim**-0.5), dim**-0.5)
