"""The functions of a method that a training step calls, compiled by torch.compile for `training.compile`.

    forward     backbone, head and unit vectors of the images of a worker
    objective   the terms of the loss, after the host has updated its state (Method.observe)

Both are compiled, with two exceptions, which the state of the training decides:

- `forward` is eager until the prototypes of the pooling are selected. The selection changes tensors that the
  forward pass of the same step has read, and a compiled one keeps no copies for its backward pass.
- `terms` is eager while a cross-batch memory is filled. The number of references changes at each step, and a
  graph for each would be compiled.

`terms` is one graph, as that of every loss of this project: a loss that torch cannot capture is an error. In
`forward`, torch breaks the graph where it cannot capture a network of a library and runs that part eagerly.

Sizes are constants of a graph (`dynamic=False`): a graph for any size, which torch makes for the second size,
rounds differently, and a resumed training can begin with another size. Random numbers are those of eager
functions (`fallback_random`), so that a pass without gradients and one with gradients draw equal masks. The
method is unchanged: a validation embeds eagerly, as an export does, so that its batches compile nothing.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch._functorch import config as autograd_config

from unseen.methods.method import Method, Outputs
from unseen.methods.settings import Training

LONG = 1000  # steps of a training that saves more than minutes of compiling: `auto`


class StepFunctions(NamedTuple):
    """See the docstring of the module."""

    forward: Callable[[Tensor], Any]
    objective: Callable[[Any, Tensor, Tensor], dict[str, Tensor]]


def step_functions(method: Method, settings: Training) -> StepFunctions:
    """`forward` and `objective` of `method`; compiled at their first calls if `settings.compile` is true, or
    `auto` and the method is on a GPU for LONG steps or more.

    Functions that this process compiled before are then discarded: torch limits how often it compiles one
    function, and runs it eagerly from there on, so that the trainings of a sweep would differ.
    """
    on_gpu = next(method.parameters()).device.type == "cuda"
    compiles = on_gpu and settings.iterations >= LONG if settings.compile == "auto" else settings.compile
    if not compiles:
        return StepFunctions(method, method.objective)
    torch.compiler.reset()
    # With gradient noise, the graph of the loss is differentiated twice and must keep its buffers. torch has
    # no public setting for it; its error message names this one.
    autograd_config.donated_buffer = settings.gradient_noise is None
    options: dict[str, Any] = {"fallback_random": True}
    compiled_forward = torch.compile(method.forward, dynamic=False, options=options)
    compiled_terms = torch.compile(method.terms, dynamic=False, fullgraph=True, options=options)

    def forward(images: Float[Tensor, "B ..."]) -> Outputs:
        return (method.forward if method.selects_prototypes() else compiled_forward)(images)

    def objective(outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"]) -> dict[str, Tensor]:
        observed = method.observe(outputs, labels)
        grows = observed.references is not None and not observed.references.is_full
        return (method.terms if grows else compiled_terms)(outputs, labels, samples, observed)

    return StepFunctions(forward, objective)
