"""The "he_normal" initial value of a table of class vectors, as the framework of GSP's released code draws it.

A normal distribution cut at two deviations, of variance 2 / C: that framework counts the rows of a (C, D) matrix as its inputs.
"""

from jaxtyping import Float
from torch import Tensor, nn

_TRUNCATED_STD = 0.87962566103423978  # of a standard normal cut at two deviations


def he_normal_(table: Float[Tensor, "C D"]) -> None:
    """Fills `table` in place."""
    std = (2 / len(table)) ** 0.5 / _TRUNCATED_STD
    nn.init.trunc_normal_(table, std=std, a=-2 * std, b=2 * std)
