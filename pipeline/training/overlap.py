"""The mean of gradients over the workers, reduced during the backward pass on GPUs.

Buckets of parameters (`pipeline/training/gather.py`) are in the reverse order of the parameters, which is
about the order of their gradients. The all-reduce of a bucket begins when its gradients are complete and all
buckets before it have begun, so that all workers reduce in the same order. Others begin after the backward
pass: those behind a parameter without gradient. The bits are those of `average_gradients` for the same order.

A layer that communicates in its backward pass (synchronised batch norm) would have to be at the same place of
that order on all workers, also if a gradient is missing on some. A method with such a layer, and all methods
on CPUs, are averaged after the backward pass. On CPUs both share the cores: with gloo, buckets during the
backward pass made a step of a ResNet-18 on two cores 7% slower. On GPUs this has not been measured.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import Parameter

from unseen.networks.batch_norm import SynchronisedBatchNorm
from unseen.runtime.device.world import world_size
from unseen.training.gather import Reduction, average_gradients, buckets, finish, start


def averaging(method: nn.Module, parameters: Sequence[Parameter]) -> contextlib.AbstractContextManager[None]:
    """A context at whose end the gradients of `parameters` are means over the workers.

    It contains one backward pass, the last that adds to the gradients.
    """
    return _during(parameters) if overlaps(method, parameters[0].device) else _after(parameters)


def overlaps(method: nn.Module, device: torch.device) -> bool:
    """Whether the reduction begins during the backward pass of `method`."""
    return (
        world_size() > 1
        and device.type == "cuda"
        and not any(isinstance(part, SynchronisedBatchNorm) and part.training for part in method.modules())
    )


@contextlib.contextmanager
def _after(parameters: Sequence[Parameter]) -> Iterator[None]:
    yield
    average_gradients(parameters)


@contextlib.contextmanager
def _during(parameters: Sequence[Parameter]) -> Iterator[None]:
    order = list(buckets(reversed(parameters)))
    incomplete = [len(bucket) for bucket in order]
    bucket_of = {id(parameter): index for index, bucket in enumerate(order) for parameter in bucket}
    started: list[Reduction] = []

    def completed(parameter: Tensor) -> None:
        index = bucket_of[id(parameter)]
        assert index >= len(started), "a second backward pass would add to gradients that are being reduced"
        incomplete[index] -= 1
        while len(started) < len(order) and incomplete[len(started)] == 0:
            started.append(start(order[len(started)], asynchronous=True))

    hooks = [
        parameter.register_post_accumulate_grad_hook(completed) for bucket in order for parameter in bucket
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    for bucket in order[len(started) :]:
        started.append(start(bucket, asynchronous=True))
    finish(started)
