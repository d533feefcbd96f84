"""The frame of a loss that computes value and gradient in one pass over blocks of similarities."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

GPU_ELEMENTS = 1 << 26  # values in memory at a time: enough to fill a GPU


class Blocked(torch.autograd.Function):
    """A subclass defines `forward`, which saves the gradients of its first inputs, None where none is needed.

    The other inputs have no gradient, and the gradient has none.
    """

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        gradients = [None if saved is None else saved * gradient for saved in ctx.saved_tensors]
        return *gradients, *[None] * (len(ctx.needs_input_grad) - len(gradients))


def start_gradients(ctx: Any, *inputs: Tensor) -> list[Tensor | None]:
    """Zeros for the gradient of each of the first inputs that needs one."""
    needed = zip(inputs, ctx.needs_input_grad, strict=False)
    return [torch.zeros_like(each) if needs else None for each, needs in needed]


def divided(gradients: Iterable[Tensor | None], divisor: int | Tensor) -> list[Tensor | None]:
    """The gradients that exist, divided in place."""
    return [None if gradient is None else gradient.div_(divisor) for gradient in gradients]


def block_size(like: Tensor, width: int, on_cpu: int, on_gpu: int = GPU_ELEMENTS) -> int:
    """The number of rows of `width` values in a block of that many values on a CPU or a GPU, at least 1."""
    return max(1, (on_cpu if like.device.type == "cpu" else on_gpu) // max(width, 1))
