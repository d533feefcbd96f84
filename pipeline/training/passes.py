"""The slice of a worker in several passes, so that the memory holds the activations of one pass at a time
(Gao et al. 2021, GradCache). It is exact for losses over the whole batch, unlike a sum of losses of parts.

    1. Without gradients, each pass embeds its images: z = f(x; theta).
    2. The loss L of the global batch of all z, and its gradient dL/dz.
    3. Each pass embeds its images again and propagates its rows: dL/dtheta = sum over z of (dL/dz) dz/dtheta.

Sums over passes round differently than one sum. Masks that a network draws (dropout, stochastic depth) are
equal in 1 and 3; they depend on the passes, as they depend on the number of workers.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from unseen.methods.method import Method
from unseen.networks.batch_norm import SynchronisedBatchNorm
from unseen.runtime.errors import UserError

Forward = Callable[[slice], Any]  # the outputs of rows of the slice


def require_rows_alone(method: Method) -> None:
    """Raises UserError if the output of an image depends on the other images of the batch."""
    for name, module in method.named_modules():
        if isinstance(module, SynchronisedBatchNorm):
            raise UserError(
                f"train.images_per_pass is set, and {name} normalises by statistics of the whole batch.",
                "Leave train.images_per_pass empty; in a backbone, backbone.batch_norm: frozen avoids it.",
            )


class Passes:
    """The outputs of `images` rows, `size` at a time. `outputs` begins the graph of their gradient."""

    def __init__(self, method: Method, forward: Forward, images: int, size: int) -> None:
        self._forward = forward
        self._rows = [slice(start, start + size) for start in range(0, images, size)]
        self._random: list[tuple[Tensor, Tensor | None]] = []
        parts = []
        with torch.no_grad():
            for rows in self._rows:
                self._random.append(_random_state())
                parts.append(forward(rows))
        values = {name: [getattr(part, name) for part in parts] for name in _fields(parts[0])}
        leaves = {name: torch.cat(tensors) for name, tensors in values.items()}
        self.leaves = {
            name: leaf.requires_grad_() for name, leaf in leaves.items() if leaf.is_floating_point()
        }
        self.outputs = dataclasses.replace(parts[0], **leaves)
        # The objective may replace state of the network, such as prototypes: step 3 needs that of step 1.
        self._state = [(tensor, tensor._version, tensor.detach().clone()) for tensor in _state(method)]

    def backward(self, parameters: Sequence[Parameter], last: AbstractContextManager[None]) -> None:
        """Step 3: adds the gradients of `parameters` for the gradient of `outputs`. `last`: a context of the
        backward pass after which they are complete."""
        changed = [
            (tensor, before, tensor.detach().clone())
            for tensor, version, before in self._state
            if tensor._version != version
        ]
        for tensor, before, _ in changed:
            tensor.data.copy_(before)
        for rows, state in zip(self._rows, self._random, strict=True):
            _set_random_state(state)
            part = self._forward(rows)
            pairs = [
                (getattr(part, name), leaf.grad[rows])
                for name, leaf in self.leaves.items()
                if leaf.grad is not None and getattr(part, name).requires_grad
            ]
            with last if rows is self._rows[-1] else nullcontext():
                if pairs:
                    values, gradients = zip(*pairs, strict=True)
                    torch.autograd.backward(values, gradients, inputs=list(parameters))
        for tensor, _, after in changed:
            tensor.data.copy_(after)


def _fields(outputs: Any) -> list[str]:
    names = [field.name for field in dataclasses.fields(outputs)]
    return [name for name in names if isinstance(getattr(outputs, name), Tensor)]


def _state(method: Method) -> Iterator[Tensor]:
    """The parameters and buffers that an objective may change and a forward pass reads: of neither the
    backbone nor a part that only losses use."""
    excluded = [method.backbone, *(part for part in method.modules() if hasattr(part, "training_only"))]
    numbers = {id(tensor) for part in excluded for tensor in (*part.parameters(), *part.buffers())}
    return (t for t in (*method.parameters(), *method.buffers()) if id(t) not in numbers)


def _random_state() -> tuple[Tensor, Tensor | None]:
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def _set_random_state(state: tuple[Tensor, Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
