"""The number of cores that this process may use."""

import os


def usable_cores() -> int:
    """The number of cores in the affinity mask of this process, or of all cores on systems without affinity
    (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
