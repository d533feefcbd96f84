"""How many cores this process may use."""

import os


def usable_cores() -> int:
    """Cores of the affinity mask of this process, or all cores on systems that have no affinity (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
