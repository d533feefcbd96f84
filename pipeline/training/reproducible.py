"""Same bytes for same inputs on a CPU."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def reproducible(device: torch.device, threads: int) -> Iterator[None]:
    """Sets the number of torch's threads, on a CPU deterministic kernels, and on a GPU the search for the
    fastest convolutions; restores them at the end.

    Bytes are equal for equal numbers of threads. A GPU repeats closely, not bit for bit.
    """
    flags: Any = torch.utils.deterministic
    before = (
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        flags.fill_uninitialized_memory,
        torch.backends.cudnn.benchmark,
    )
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        flags.fill_uninitialized_memory = False  # a debugging aid that costs time
    else:
        torch.backends.cudnn.benchmark = True  # all batches of a training have one shape
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
        flags.fill_uninitialized_memory = before[2]
        torch.backends.cudnn.benchmark = before[3]
