"""Reads of a device by the host. Each read waits until the device has finished the work queued before it."""

import torch
from torch import Tensor


def reads_wait(tensor: Tensor) -> bool:
    """Whether the host waits when it reads a value or a data-dependent size of `tensor`: not on a CPU.

    Also in a function that torch.compile captures, which cannot read: its graph is that of a GPU everywhere.
    And of a fake tensor (pipeline/training/cost.py), which has no values.
    """
    return tensor.device.type != "cpu" or hasattr(tensor, "fake_mode") or torch.compiler.is_compiling()


class HostValue:
    """The value of a buffer with one element.

    It is read from the device once, and again only after other code has changed or replaced the buffer.
    """

    def __init__(self) -> None:
        self._buffer: Tensor | None = None
        self._version, self._value = -1, 0

    def read(self, buffer: Tensor) -> int:
        if self._buffer is not buffer or self._version != buffer._version:
            self._remember(buffer, int(buffer))
        return self._value

    @torch.no_grad()
    def write(self, buffer: Tensor, value: int) -> None:
        """Sets the buffer to `value`."""
        buffer.fill_(value)
        self._remember(buffer, value)

    def _remember(self, buffer: Tensor, value: int) -> None:
        self._buffer, self._version, self._value = buffer, buffer._version, value
