"""Consistency of two embeddings of one batch: their similarities should be equal (CRT eq. 5).

    loss = 1/B^2 sum_ij | a_i . a_j - b_i . b_j |

Deviation: the paper writes the entrywise norm without 1/B^2. At the published weight of 0.9, a sum over
thousands of pairs would be far larger than the metric loss.
"""

from jaxtyping import Float
from torch import Tensor, nn

from unseen.runtime.device.precision import full_precision, without_autocast


def similarity_consistency(a: Float[Tensor, "B first"], b: Float[Tensor, "B second"]) -> Float[Tensor, ""]:
    """The mean absolute difference of the cosines in two sets of unit vectors.

    Their dimensions may differ. Both sets receive gradients.
    """
    with without_autocast(a):
        a, b = full_precision(a), full_precision(b)
        return (a @ a.T - b @ b.T).abs().mean()


class Consistency(nn.Module):
    """`similarity_consistency` as a module."""

    forward = staticmethod(similarity_consistency)
