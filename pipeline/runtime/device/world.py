"""The processes that share the batch."""

import contextlib
from collections.abc import Iterator

import torch.distributed as dist

_fixed: list[int] = []  # the sizes of the blocks of `fixed_world` in this process


def world_size() -> int:
    """The size of the process group, 1 without one. Raises RuntimeError in a block of `fixed_world` whose
    group was destroyed."""
    has_group = dist.is_available() and dist.is_initialized()
    if not has_group and _fixed and _fixed[-1] > 1:
        raise RuntimeError("the process group was destroyed: another worker was lost.")
    return dist.get_world_size() if has_group else 1


@contextlib.contextmanager
def fixed_world() -> Iterator[None]:
    """A block in which `world_size` keeps its value, or raises RuntimeError.

    After the loss of a worker, Ray Train destroys the groups of the others from another thread. A step in
    progress would go on with its own slice as the batch, and a checkpoint of it would be wrong.
    """
    _fixed.append(world_size())
    try:
        yield
    finally:
        _fixed.pop()
