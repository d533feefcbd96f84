"""The initialization "he_normal" of a table of class vectors, as in the framework of GSP's released code.

It is a normal distribution truncated at two standard deviations with variance 2 / C, because that framework
counts the rows of a (C, D) matrix as its inputs.
"""

from jaxtyping import Float
from torch import Tensor, nn

# The standard deviation of a standard normal distribution that is truncated at two standard deviations.
_TRUNCATED_STD = 0.87962566103423978


def he_normal_(table: Float[Tensor, "C D"]) -> None:
    """Fills `table` in place."""
    truncated_normal_(table, (2 / len(table)) ** 0.5)


def truncated_normal_(table: Float[Tensor, "C D"], std: float) -> None:
    """Fills `table` in place with a normal distribution, truncated at two standard deviations, whose standard
    deviation after truncation is `std`."""
    std = std / _TRUNCATED_STD
    nn.init.trunc_normal_(table, std=std, a=-2 * std, b=2 * std)
