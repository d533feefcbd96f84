"""Batch normalisation with the statistics of the global batch, or with frozen statistics.

    mu = (1/n) sum_i x_i        sigma^2 = (1/n) sum_i (x_i - mu)^2
    y = gamma xhat + beta,      xhat = (x - mu) / sqrt(sigma^2 + eps)

with i over all positions of all images of all workers, per channel. With g = dloss/dy the gradients are

    dx = gamma / sqrt(sigma^2 + eps) [ g - (1/n) sum_i g_i - xhat (1/n) sum_i g_i xhat_i ]
    dgamma = sum_i g_i xhat_i        dbeta = sum_i g_i

Convention of the gradients (`pipeline/training/gather.py`): each of W workers back-propagates the loss of the
global batch through its rows, scaled by W, and parameter gradients are then averaged over the workers. All
terms are linear in g. So dx has the factor W if its two sums are over all workers. dgamma and dbeta must be
the sums of the worker: the average turns (1/W) sum_r W sum_{i in r} g_i into the sum over all rows.
torch.nn.SyncBatchNorm does the same under DDP, but not for CPU tensors. On a GPU its kernels compute these
formulas; they read inputs in half precision without a copy in float32.
"""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from unseen.runtime.device.precision import full_precision
from unseen.runtime.device.world import world_size


class SynchronisedBatchNorm(_BatchNorm):
    """Batch norm over the batch of all workers, for inputs of any rank >= 2.

    With one worker it is that of torch.

    `drop` and `act` are layers that timm fuses with a batch norm. Parameters, buffers and their names are
    those of the replaced module. The running statistics (with the unbiased variance, as in torch) are
    computed from the same values in the same order on every worker, so they are bitwise equal. Under mixed
    precision, statistics are computed in float32.
    """

    @classmethod
    def of(cls, norm: _BatchNorm) -> "SynchronisedBatchNorm":
        """The synchronised form of `norm`, with the same Parameter and buffer objects and constants."""
        new = cls(
            norm.num_features,
            eps=norm.eps,
            momentum=norm.momentum,
            affine=norm.affine,
            track_running_stats=norm.track_running_stats,
        )
        new._parameters = norm._parameters
        new._buffers = norm._buffers
        for name in ("drop", "act"):
            if name in norm._modules:
                new.add_module(name, norm._modules[name])
        return new.train(norm.training)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accepts every rank; each class of torch accepts one."""

    def forward(self, x: Float[Tensor, "B L *positions"]) -> Float[Tensor, "B L *positions"]:
        y = self._normalise(x) if self.training and world_size() > 1 else super().forward(x)
        for fused in self._modules.values():
            y = fused(y) if fused is not None else y
        return y

    def _normalise(self, x: Tensor) -> Tensor:
        running = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        if _has_kernels(x, self.weight, self.bias, *running):
            normalised: Tensor = _FusedNormalisation.apply(
                x, self.weight, self.bias, *running, self._next_momentum(), self.eps
            )
            return normalised
        y, mean, variance, count = _GlobalNormalisation.apply(
            full_precision(x), self.weight, self.bias, self.eps
        )
        running_mean, running_var = running
        if running_mean is not None and running_var is not None:
            momentum = self._next_momentum()
            with torch.no_grad():
                running_mean.lerp_(mean.to(running_mean.dtype), momentum)
                running_var.lerp_((variance * count / (count - 1)).to(running_var.dtype), momentum)
        return y.to(x.dtype)

    @torch.no_grad()
    def _next_momentum(self) -> float:
        """Counts a batch, and returns its share in the running statistics; 0 without such statistics."""
        if not self.track_running_stats or self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.add_(1)
        return self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)


class _GlobalNormalisation(torch.autograd.Function):
    """The formulas of the module docstring. Returns y, mu, sigma^2 and n."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        local_count = x.new_full((1,), x.numel() / x.shape[1])
        variance, mean = torch.var_mean(x, axes, correction=0)
        # One exchange, which all workers combine in the same order (Chan's formula, without cancellation).
        counts, means, variances = _of_all_workers(local_count, mean, variance)
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (counts * (variances + (means - mean) ** 2)).sum(0) / count

        shape = [1, -1] + [1] * (x.dim() - 2)
        scale = torch.rsqrt(variance + eps)
        normalised = (x - mean.view(shape)) * scale.view(shape)
        y = normalised.clone() if weight is None else normalised * weight.view(shape)
        if bias is not None:
            y += bias.view(shape)
        ctx.save_for_backward(normalised, scale, weight, count)
        ctx.axes, ctx.shape, ctx.has_bias = axes, shape, bias is not None
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
        normalised, scale, weight, count = ctx.saved_tensors
        local = torch.stack([gradient.sum(ctx.axes), (gradient * normalised).sum(ctx.axes)])
        total = local.clone()
        dist.all_reduce(total)
        mean, correlation = (total / count).view(2, *ctx.shape)
        factor = (scale if weight is None else scale * weight).view(ctx.shape)
        dx = factor * (gradient - mean - normalised * correlation)
        return dx, local[1] if weight is not None else None, local[0] if ctx.has_bias else None, None


def _has_kernels(x: Tensor, *tensors: Tensor | None) -> bool:
    """Whether torch has fused kernels for x, and `tensors` are in the precision of its sums."""
    precision = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.is_cuda and all(tensor is None or tensor.dtype == precision for tensor in tensors)


class _FusedNormalisation(torch.autograd.Function):
    """The same by torch's kernels for synchronised batch norm. Returns y and updates running statistics.

    x may be in half precision; statistics and sums are in float32. No slice is empty.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        momentum: float,
        eps: float,
    ) -> Tensor:
        x = x.contiguous(memory_format=_layout(x))
        mean, scale = torch.batch_norm_stats(x, eps)  # scale: 1 / sqrt(sigma^2 + eps)
        counts, means, scales = _of_all_workers(mean.new_full((1,), x.numel() // x.shape[1]), mean, scale)
        if running_mean is None or running_var is None:
            # Without them the kernel reads the counts in the precision of x: 2049 is no number of float16.
            running_mean, running_var = torch.zeros_like(mean), torch.zeros_like(mean)
        mean, scale = torch.batch_norm_gather_stats_with_counts(
            x,
            mean=means.contiguous(),
            invstd=scales.contiguous(),
            running_mean=running_mean,
            running_var=running_var,
            momentum=momentum,
            eps=eps,
            counts=counts.flatten(),
        )
        ctx.save_for_backward(x, weight, mean, scale, counts.flatten().to(torch.int32))
        return torch.batch_norm_elemt(x, weight, bias, mean, scale, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale, counts = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=_layout(x))
        sums, products, of_weight, of_bias = torch.batch_norm_backward_reduce(
            gradient,
            x,
            mean=mean,
            invstd=scale,
            weight=weight,
            input_g=True,
            weight_g=ctx.needs_input_grad[1],
            bias_g=ctx.needs_input_grad[2],
        )
        total = torch.stack([sums, products])
        dist.all_reduce(total)
        dx = torch.batch_norm_backward_elemt(
            gradient,
            x,
            mean=mean,
            invstd=scale,
            weight=weight,
            sum_dy=total[0],
            sum_dy_xmu=total[1],
            count=counts,
        )
        affine = (
            of_weight if ctx.needs_input_grad[1] else None,
            of_bias if ctx.needs_input_grad[2] else None,
        )
        return dx, *affine, None, None, None, None


def _layout(x: Tensor) -> torch.memory_format:
    """The layout in which the kernels read x."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def _of_all_workers(*vectors: Tensor) -> tuple[Tensor, ...]:
    """Vectors of n elements as matrices (W, n), exchanged in one call."""
    packed = torch.cat(vectors)
    gathered = [torch.empty_like(packed) for _ in range(world_size())]
    dist.all_gather(gathered, packed)
    return torch.stack(gathered).split([len(vector) for vector in vectors], dim=1)


def set_momentum(module: nn.Module, momentum: float) -> None:
    """Sets the share of a new batch in the running statistics of every batch norm in `module`."""
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            child.momentum = momentum


def synchronise(module: nn.Module) -> nn.Module:
    """Replaces every batch norm in `module` by its synchronised form and returns the module.

    If `module` is itself a batch norm, the result is another module.
    """
    if isinstance(module, _BatchNorm):
        return module if isinstance(module, SynchronisedBatchNorm) else SynchronisedBatchNorm.of(module)
    for name, child in module.named_children():
        replaced = synchronise(child)
        if replaced is not child:
            setattr(module, name, replaced)
    return module


def freeze(module: nn.Module) -> nn.Module:
    """Sets every batch norm in `module` to eval mode and returns the module. Call it after each `train()`.

    Running statistics are used and not updated. Scale and shift are still trained, as in the released code of
    Multi-Similarity and CBML (CRT's framework). Proxy-Anchor's code fixes these too: see `fix`.
    """
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            child.eval()
    return module


def fix(module: nn.Module) -> nn.Module:
    """Excludes scale and shift of every batch norm in `module` from training and returns the module.

    Together with `freeze` this is Proxy-Anchor's code. Both remain parameters without gradient, so that
    weights keep their names.
    """
    for child in module.modules():
        if isinstance(child, _BatchNorm):
            for parameter in child.parameters():
                parameter.requires_grad_(False)
    return module
