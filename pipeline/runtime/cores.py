"""The number of cores that this process may use, and the threads that decode images on them."""

import math
import os
from pathlib import Path

# The limit of a container: "max 100000", or microseconds of CPU time per period such as "800000 100000"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """The number of cores in the affinity mask of this process, or of all cores on systems without affinity
    (macOS); at most the CPU limit of its container (cgroup version 2), rounded up."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not _QUOTA.is_file():
        return cores
    quota, period = _QUOTA.read_text(encoding="ascii").split()
    return cores if quota == "max" else min(cores, math.ceil(int(quota) / int(period)))


def loader_threads_of(processes: int, device: str = "cpu") -> int:
    """How many threads decode images in each of `processes` processes of this machine: an equal share of its
    cores, at least 1. At most 8 for a network on the CPU, which computes more slowly than they decode; a GPU
    waits for photos of several megapixels with any number of cores."""
    share = max(1, usable_cores() // processes)
    return share if device == "cuda" else min(8, share)
