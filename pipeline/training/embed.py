"""The loop that embeds: images of a loader -> what a network computes from them.

The copy of a batch to the device, the network, and the copy of its outputs to the host are queued one batch
ahead of the host.
"""

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int, Int64
from torch import Tensor

from unseen.runtime.device.transfer import DeviceToHost, HostToDevice, one_late
from unseen.runtime.progress import Progress

Forward = Callable[[Tensor], tuple[Tensor, ...]]  # images on the device -> outputs, one row per image


@runtime_checkable
class Loader(Protocol):
    """Images in batches, in the order of `rows`, each batch with its rows."""

    @property
    def rows(self) -> Int[np.ndarray, "N"]: ...

    def __iter__(self) -> Iterator[tuple[Tensor, Int64[Tensor, "b"]]]: ...


def on_device(loader: Loader, device: torch.device) -> Iterator[tuple[Tensor, Int64[Tensor, "b"]]]:
    """The batches of a loader on a device."""
    copied, done = HostToDevice(device), 0
    for images, ids in loader:
        part = loader.rows[done : done + len(ids)]
        assert np.array_equal(ids.numpy(), part), "the loader must keep the order of the rows"
        done += len(ids)
        (there,) = copied(images)
        yield there, ids


@torch.inference_mode()
def embed_rows(
    forward: Forward, loader: Loader, device: torch.device, progress: Progress | None = None
) -> tuple[np.ndarray, ...]:
    """The outputs of `forward` for all rows of the loader, in their order; an empty tuple without rows."""

    def submitted() -> Iterator[tuple[DeviceToHost, ...]]:
        for images, _ in on_device(loader, device):
            yield tuple(map(DeviceToHost, forward(images)))

    arrays: tuple[np.ndarray, ...] = ()
    done = 0
    for outputs in one_late(submitted()):
        parts = [output.wait().numpy() for output in outputs]
        if not arrays:
            arrays = tuple(np.empty((len(loader.rows), *part.shape[1:]), part.dtype) for part in parts)
        count = len(parts[0])
        for array, part in zip(arrays, parts, strict=True):
            array[done : done + count] = part
        done += count
        if progress is not None:
            progress.advance(count)
    return arrays
