"""Copies between the memory of the host and that of a device, for which the host does not wait.

A copy from or to pinned memory is queued like a kernel. On a CPU nothing is copied.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class HostToDevice:
    """Copies tensors of the host to `device`: to a GPU from pinned memory, on a stream of its own.

    A tensor that is not pinned is first copied to such memory. A copy and the work that was queued before
    overlap. Work that is queued later waits for the copy.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        if self._stream is None:
            return tuple(tensor.to(self._device) for tensor in tensors)
        pinned = [tensor.pin_memory() for tensor in tensors]
        with torch.cuda.stream(self._stream):
            copies = tuple(tensor.to(self._device, non_blocking=True) for tensor in pinned)
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        for copy in copies:
            copy.record_stream(current)  # its memory is not used again before the queued work has read it
        return copies


class DeviceToHost:
    """A tensor on the host: from a GPU a copy that is queued at once, from a CPU the tensor itself."""

    def __init__(self, values: Tensor) -> None:
        values = values.detach()
        self._copied: torch.cuda.Event | None = None
        if values.is_cuda:
            self._values = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._values.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record(torch.cuda.current_stream(values.device))
        else:
            self._values = values

    def wait(self) -> Tensor:
        """The tensor, when the copy has ended."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._values


def one_late(items: Iterable[T]) -> Iterator[T]:
    """`items` in their order, each after the next one is drawn.

    If an item queues work and a `DeviceToHost`, the device computes the next one while the host waits for it.
    """
    iterator = iter(items)
    try:
        previous = next(iterator)
    except StopIteration:
        return
    for item in iterator:
        yield previous
        previous = item
    yield previous
