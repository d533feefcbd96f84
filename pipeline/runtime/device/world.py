"""The processes that share the batch."""

import torch.distributed as dist


def world_size() -> int:
    """The size of the process group, 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
