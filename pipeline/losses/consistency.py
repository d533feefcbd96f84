"""Consistency of two embeddings of one batch: both should see the same similarities (CRT eq. 5).

    loss = 1/B^2 sum_ij | a_i . a_j - b_i . b_j |

The paper writes the entrywise norm without 1/B^2: a sum over thousands of pairs would drown the metric loss at the published weight of 0.9.
"""

from jaxtyping import Float
from torch import Tensor

from pipeline.losses.precision import full_precision, without_autocast


def similarity_consistency(a: Float[Tensor, "B first"], b: Float[Tensor, "B second"]) -> Float[Tensor, ""]:
    """The mean absolute difference of cosines of two sets of unit vectors, whose dimensions may differ. Both receive gradients."""
    with without_autocast(a):
        a, b = full_precision(a), full_precision(b)
        return (a @ a.T - b @ b.T).abs().mean()
