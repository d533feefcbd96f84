"""The operators of torch for synchronised batch norm, which exist for CUDA alone, by their formulas.

With x of shape (B, C, ...), per channel, n positions on a worker: `batch_norm_stats` gives the mean and
1 / sqrt(variance + eps) of a worker, `batch_norm_gather_stats_with_counts` those of all workers,
`batch_norm_elemt` the normalised values, `batch_norm_backward_reduce` the sums of the gradient g and of
g (x - mean) with the gradients of weight and bias, and `batch_norm_backward_elemt` the gradient of x.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _per_channel(vector: Tensor, x: Tensor) -> Tensor:
    return vector.view([1, -1, *[1] * (x.dim() - 2)])


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _statistics(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(x.float(), _axes(x), correction=0)
    return mean, torch.rsqrt(variance + eps)


def _of_all_workers(
    x: Tensor,
    means: Tensor,
    scales: Tensor,
    running_mean: Tensor | None,
    running_variance: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    weight = counts.double().view(-1, 1)
    count = weight.sum()
    mean = (weight * means.double()).sum(0) / count
    variances = 1 / scales.double() ** 2 - eps
    variance = (weight * (variances + (means.double() - mean) ** 2)).sum(0) / count
    if running_mean is not None and running_variance is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_variance.lerp_((variance * count / (count - 1)).to(running_variance.dtype), momentum)
    return mean.float(), torch.rsqrt(variance + eps).float()


def _normalised(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, scale: Tensor, eps: float
) -> Tensor:
    y = (x.float() - _per_channel(mean, x)) * _per_channel(scale, x)
    if weight is not None:
        y = y * _per_channel(weight, x)
    if bias is not None:
        y = y + _per_channel(bias, x)
    return y.to(x.dtype)


def _sums(
    gradient: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, *_: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = gradient.float()
    total = g.sum(_axes(x))
    products = (g * (x.float() - _per_channel(mean, x))).sum(_axes(x))
    return total, products, products * scale, total.clone()


def _gradient(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    sums: Tensor,
    products: Tensor,
    counts: Tensor,
) -> Tensor:
    count = counts.sum().float()
    centred = x.float() - _per_channel(mean, x)
    factor = scale if weight is None else scale * weight
    change = _per_channel(sums / count, x) + centred * _per_channel(scale * scale * products / count, x)
    return ((gradient.float() - change) * _per_channel(factor, x)).to(gradient.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _statistics,
    "batch_norm_gather_stats_with_counts": _of_all_workers,
    "batch_norm_elemt": _normalised,
    "batch_norm_backward_reduce": _sums,
    "batch_norm_backward_elemt": _gradient,
}
