"""The soft maximum of multi-similarity, on either side of its threshold: log(1 + sum exp), with its weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

_LOG_2 = math.log(2)
_SAFE = 60.0  # an exponent that float32 holds, even summed over thousands of terms


def log_one_plus_sum(
    similarity: Float[Tensor, "rows columns"],
    member: Float[Tensor, "rows columns"],
    slope: float,
    threshold: float,
) -> tuple[Float[Tensor, "rows 1"], Float[Tensor, "rows columns"]]:
    """v_i = log(1 + sum_j m_ij exp(slope (s_ij - threshold))) of each row, and its weights m_ij exp(...) / (1 + sum): dv_i/ds_ij / slope.

    similarity: cosines. member: m, 0 or 1. Does not overflow whatever the slope.
    """
    # Powers of two: torch's exp2 keeps its speed at tiny results, its exp does not.
    exponent = torch.mul(similarity, slope / _LOG_2).sub_(slope * threshold / _LOG_2)
    if abs(slope) - slope * threshold <= _SAFE:  # every constant in use: no cosine can overflow
        powers = exponent.clamp_(-115, 115).exp2_().mul_(member)
        total = powers.sum(1, keepdim=True)
        return torch.log1p(total), powers.div_(total.add_(1))
    shift = torch.add(exponent, 1 - member, alpha=-1e30).amax(1, keepdim=True).clamp_(min=0)  # the largest exponent of a member, at least 0
    powers = exponent.sub_(shift).clamp_(-115, 0).exp2_().mul_(member)
    above = torch.expm1(shift * -_LOG_2).add_(powers.sum(1, keepdim=True))  # (1 + sum) 2^-shift - 1
    return torch.log1p(above).add_(shift, alpha=_LOG_2), powers.div_(above.add_(1))
