"""Batches on the device of a training, copied while the device computes the step before."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from pipeline.data.loader import TrainBatch


def moved(batches: Iterator[TrainBatch], device: torch.device) -> Iterator[TrainBatch]:
    """`batches` on `device`. For a GPU each is copied from pinned memory on a stream of its own.

    The host has queued the step before when it asks for a batch, so that the copy and that step overlap.
    """
    if device.type != "cuda":
        yield from batches
        return
    copies = torch.cuda.Stream(device)
    for batch in batches:
        host = (batch.images.pin_memory(), batch.labels.pin_memory(), batch.samples.pin_memory())
        with torch.cuda.stream(copies):
            images, labels, samples = (tensor.to(device, non_blocking=True) for tensor in host)
        current = torch.cuda.current_stream(device)
        current.wait_stream(copies)
        for tensor in (images, labels, samples):
            tensor.record_stream(current)  # its memory is not used again before the step has read it
        yield replace(batch, images=images, labels=labels, samples=samples)
