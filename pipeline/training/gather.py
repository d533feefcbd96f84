"""One global batch on every worker, with the exact gradient: gather in rank order, then average.

Each of W workers embeds its own slice of the batch; every worker then computes the whole loss on all slices.
Two rules make the gradient that of one process on the same batch:

    gather:   Z = [z_1; ...; z_W]          backward of worker r:  dL/dz_r = W * (dL/dZ)_r    (its slice, times
    W)
    average:  g(θ) = 1/W Σ_r g_r(θ)        g_r(θ): what backward leaves on worker r

Proof. L(Z, φ) is the loss, θ a parameter that acts before the gather (z_r = f(x_r; θ)), φ one that acts after
it. All workers have the same Z and φ.
 - before: g_r(θ) = W (dL/dZ)_r ∂z_r/∂θ, so 1/W Σ_r g_r(θ) = Σ_r (dL/dZ)_r ∂z_r/∂θ = dL/dθ.
 - after:  every worker sees the whole batch, g_r(φ) = dL/dφ, so 1/W Σ_r g_r(φ) = dL/dφ.
 - both:   g_r is the sum of the two, and averaging is linear.
 - layers that communicate before the gather (synchronised batch norm) differentiate the sum of the losses of
   all workers. That is W times the true gradient on each, and the average divides by W as above.
The factor occurs once on every path, so a tensor is gathered once. The common schemes break one of the cases:
a plain slice without the factor loses 1/W before the gather; summing gradients instead of averaging them
multiplies those of φ by W.

Each gradient is reduced once. That of φ (proxies, for example) is complete on every worker before the mean,
which then removes differences of rounding: kernels of a GPU do not repeat bit for bit, and without the mean
the copies of φ would differ after some steps.

The reduction follows the backward pass, or overlaps it on GPUs: `pipeline/training/overlap.py`.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import torch
import torch.distributed as dist
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import Parameter

from unseen.runtime.device.world import world_size

BUCKET_ELEMENTS = 1 << 23  # 32 MiB of float32: few calls, little extra memory


@runtime_checkable
class IsDataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Outputs = TypeVar("Outputs", bound=IsDataclass)


def gather_rows(rows: Shaped[Tensor, "b *rest"]) -> Shaped[Tensor, "B *rest"]:
    """The rows of all workers in rank order, B = W b, with the gradient stated above.

    The input itself for one worker. Shapes must be equal on all workers: the slices of a batch that W
    divides.
    """
    if world_size() == 1:
        return rows
    if rows.requires_grad and torch.is_grad_enabled():
        gathered: Tensor = _Gather.apply(rows)
        return gathered
    return _all_gather(rows)


def gather_outputs(outputs: Outputs) -> Outputs:
    """A dataclass of tensors (or None), one row per image, gathered field by field."""
    names = [field.name for field in dataclasses.fields(outputs)]
    values: dict[str, Any] = {name: getattr(outputs, name) for name in names}
    counts = {name: len(value) for name, value in values.items() if value is not None}
    assert len(set(counts.values())) == 1, f"each output of a method has one row per image, got rows {counts}"
    gathered = {name: None if value is None else gather_rows(value) for name, value in values.items()}
    return dataclasses.replace(outputs, **gathered)


def average_gradients(parameters: Iterable[Parameter]) -> None:
    """Replaces each gradient by its mean over the workers, in a few flat all-reduces in the order given.

    A gradient that is missing on one worker counts as zeros there. One that is missing on all workers stays
    missing, so that an optimizer skips the parameter with W workers as it does with one. The host waits for
    the reductions once, and only if a gradient is missing on its worker. The means have the strides of the
    parameters, which fused optimizers require.
    """
    if world_size() > 1:
        finish(start(bucket) for bucket in buckets(parameters))


@dataclasses.dataclass(frozen=True)
class Reduction:
    """The sum over the workers of a bucket. flat: the gradients, then 1 for each that is present, else 0."""

    bucket: list[Parameter]
    flat: Tensor
    work: dist.Work | None  # to wait for


def start(bucket: list[Parameter], asynchronous: bool = False) -> Reduction:
    """Begins the all-reduce of the gradients of a bucket, and awaits it unless it is `asynchronous`."""
    pieces = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in bucket]
    present = pieces[0].new_ones(len(bucket))
    for place, parameter in enumerate(bucket):
        if parameter.grad is None:
            present[place].zero_()
    flat = torch.cat([*pieces, present])
    return Reduction(bucket, flat, dist.all_reduce(flat, async_op=asynchronous))


def finish(reductions: Iterable[Reduction]) -> None:
    """Replaces the gradients of the buckets by their means, as `average_gradients` states."""
    # Parameters without gradient here, their means, and the share of workers with a gradient.
    undecided: list[tuple[Parameter, Tensor, Tensor]] = []
    for reduction in reductions:
        if reduction.work is not None:
            reduction.work.wait()
        sizes = [parameter.numel() for parameter in reduction.bucket]
        *means, shares = reduction.flat.div_(world_size()).split([*sizes, len(sizes)])
        present: list[Tensor] = []
        of_present: list[Tensor] = []
        for parameter, mean, share in zip(reduction.bucket, means, shares, strict=True):
            if parameter.grad is None:
                undecided.append((parameter, mean, share))
            else:
                parameter.grad = _in_strides_of(parameter)
                present.append(parameter.grad)
                of_present.append(mean.view_as(parameter))
        if present:
            torch._foreach_copy_(present, of_present)  # few launches on a GPU
    if undecided:
        of_all = torch.stack([share.to(undecided[0][2]) for _, _, share in undecided])
        for (parameter, mean, _), share in zip(undecided, of_all.tolist(), strict=True):
            parameter.grad = _in_strides_of(parameter).copy_(mean.view_as(parameter)) if share else None


def buckets(parameters: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Consecutive trained parameters of one type and device, at most BUCKET_ELEMENTS together (or one
    larger)."""
    bucket: list[Parameter] = []
    elements = 0
    for parameter in (parameter for parameter in parameters if parameter.requires_grad):
        first = bucket[0] if bucket else parameter
        full = elements + parameter.numel() > BUCKET_ELEMENTS
        if bucket and (full or parameter.dtype != first.dtype or parameter.device != first.device):
            yield bucket
            bucket, elements = [], 0
        bucket.append(parameter)
        elements += parameter.numel()
    if bucket:
        yield bucket


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        ctx.rows = len(rows)
        return _all_gather(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        start = dist.get_rank() * ctx.rows
        return gradients[0][start : start + ctx.rows] * world_size()


def _all_gather(rows: Tensor) -> Tensor:
    rows = rows.detach().contiguous()
    pieces = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(pieces, rows)
    return torch.cat(pieces)


def _in_strides_of(parameter: Parameter) -> Tensor:
    """Memory for a gradient in the strides of `parameter`: its gradient if it has them, else a new tensor."""
    gradient = parameter.grad
    if gradient is None or gradient.stride() != parameter.stride():
        return torch.empty_like(parameter)
    return gradient


def assert_same_on_all_workers(module: torch.nn.Module) -> None:
    """Raises RuntimeError if parameters or buffers differ between workers, by a sum over their bytes."""
    if world_size() == 1:
        return
    state = {name: value.detach() for name, value in module.state_dict().items()}
    octets = [value.contiguous().flatten().view(torch.uint8) for value in state.values()]
    sums = torch.stack([each.sum(dtype=torch.int64) for each in octets])
    low, high = sums.clone(), sums.clone()
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(high, op=dist.ReduceOp.MAX)
    if names := [name for name, differs in zip(state, (low != high).tolist(), strict=True) if differs]:
        problem = f"{', '.join(names)} differ between workers."
        raise RuntimeError(f"{problem} This is a defect of the training code.")
