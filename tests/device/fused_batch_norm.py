"""The operators of torch for synchronised batch norm, which exist for CUDA alone, defined in float64.

Their results have the types of the kernels: float64 for inputs in float64, otherwise float32 for statistics
and sums, and the type of the input for its normalised values and gradients.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _view(values: Tensor, x: Tensor) -> Tensor:
    return values.double().view(1, -1, *[1] * (x.dim() - 2))


def _sums_of(x: Tensor, values: Tensor) -> Tensor:
    """`values` in the type of sums over x."""
    return values if x.dtype == torch.float64 else values.float()


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    variance, mean = torch.var_mean(input.double(), _axes(input), correction=0)
    return _sums_of(input, mean), _sums_of(input, (variance + eps).rsqrt())


def _gather_stats(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    assert mean.is_contiguous()
    assert invstd.is_contiguous()
    assert running_mean is not None
    assert running_var is not None
    assert counts.dtype == running_mean.dtype
    assert counts.shape == (len(mean),)
    count = counts.double().sum()
    share = counts.double()[:, None] / count
    of_all = (share * mean.double()).sum(0)
    variance = (share * (invstd.double() ** -2 - eps + (mean.double() - of_all) ** 2)).sum(0)
    running_mean.lerp_(of_all.to(running_mean.dtype), momentum)
    running_var.lerp_((variance * count / (count - 1)).to(running_var.dtype), momentum)
    return of_all.to(mean.dtype), (variance + eps).rsqrt().to(mean.dtype)


def _elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    y = (input.double() - _view(mean, input)) * _view(invstd, input)
    y = y if weight is None else y * _view(weight, input)
    return (y if bias is None else y + _view(bias, input)).to(input.dtype)


def _backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, ...]:
    assert input_g
    assert weight is not None or not weight_g  # the kernel takes the type of its result from the weight
    products = (grad_out.double() * (input.double() - _view(mean, input))).sum(_axes(input))
    sums = grad_out.double().sum(_axes(input))
    results = (sums, products, products * invstd, sums.clone())
    return tuple(_sums_of(input, values) for values in results)


def _backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    assert count.dtype == torch.int32
    total = count.sum()
    along = (input.double() - _view(mean, input)) * _view(invstd.double() ** 2 * sum_dy_xmu / total, input)
    factor = invstd if weight is None else invstd * weight
    return ((grad_out.double() - _view(sum_dy / total, input) - along) * _view(factor, input)).to(input.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _gather_stats,
    "batch_norm_elemt": _elemt,
    "batch_norm_backward_reduce": _backward_reduce,
    "batch_norm_backward_elemt": _backward_elemt,
}
