"""Locks of files (flock). The system releases a lock when its process ends, however it ends.

On a file system without locks no lock is taken, and each file counts as held: no file in use is removed.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(path: Path, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Opens the file `path` with `flags` and holds its lock during the block."""
    descriptor = os.open(path, flags, 0o666)  # the system applies the umask
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def acquired(path: Path) -> Iterator[bool]:
    """Whether no process holds the lock of the file `path`; then it is held during the block.

    Raises OSError if the file is missing or may not be opened.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds it, or a file system without locks
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
