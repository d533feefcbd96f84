"""Batches on the device of a training, copied while the device computes the step before."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from unseen.data.loader import TrainBatch
from unseen.runtime.device.transfer import HostToDevice


def moved(batches: Iterator[TrainBatch], device: torch.device) -> Iterator[TrainBatch]:
    """`batches` on `device`.

    The host has queued the step before when it asks for a batch, so that the copy and that step overlap.
    """
    copied = HostToDevice(device)
    for batch in batches:
        images, labels, samples = copied(batch.images, batch.labels, batch.samples)
        yield replace(batch, images=images, labels=labels, samples=samples)
