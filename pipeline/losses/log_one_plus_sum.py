"""log(1 + sum exp), the soft maximum of multi-similarity on each side of its threshold, with its weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_LOG_2 = math.log(2)
_SAFE = 60.0  # largest exponent whose power fits float32, also summed over thousands of terms


def log_one_plus_sum(
    similarity: Float[Tensor, "rows columns"],
    member: Float[Tensor, "rows columns"],
    slope: float,
    threshold: float,
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows columns"]]:
    """v_i = log(1 + sum_j m_ij exp(slope (s_ij - threshold))) of each row, and dv_i/ds_ij / slope.

    The latter are the weights m_ij exp(...) / (1 + sum). similarity: cosines. member: m, 0 or 1. No slope
    overflows.
    """
    # Powers of two, because torch's exp is slow for tiny results and its exp2 is not.
    exponent = torch.mul(similarity, slope / _LOG_2).sub_(slope * threshold / _LOG_2)
    if abs(slope) - slope * threshold <= _SAFE:  # true for all published constants
        powers = exponent.clamp_(-115, 115).exp2_().mul_(member)
        total = powers.sum(1, keepdim=True)
        return torch.log1p(total), powers.div_(total.add_(1))
    # The largest exponent of a member, at least 0.
    shift = torch.add(exponent, 1 - member, alpha=-1e30).amax(1, keepdim=True).clamp_(min=0)
    powers = exponent.sub_(shift).clamp_(-115, 0).exp2_().mul_(member)
    above = torch.expm1(shift * -_LOG_2).add_(powers.sum(1, keepdim=True))  # (1 + sum) 2^-shift - 1
    return torch.log1p(above).add_(shift, alpha=_LOG_2), powers.div_(above.add_(1))
