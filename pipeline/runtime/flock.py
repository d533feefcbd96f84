"""Locks of files (flock). The system releases a lock when its process ends, however it ends.

On a file system without locks no lock is taken, and each file counts as held: no file in use is removed. So
does a file of another user, and a link, named pipe, socket or device, whose opening could wait for ever.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# A named pipe without a writer does not block, and a link is an error.
_WITHOUT_WAITING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW


@contextlib.contextmanager
def held(path: Path, flags: int = os.O_RDONLY, lock: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Opens `path` with `flags` and holds its lock, of the kind `lock`, during the block."""
    descriptor = os.open(path, flags, 0o666)  # the system applies the umask
    try:
        with contextlib.suppress(OSError):  # a file system without locks, or LOCK_NB
            fcntl.flock(descriptor, lock)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def acquired(path: Path) -> Iterator[bool]:
    """Whether `path` is a file or directory of this user whose lock no process holds; then it is held during
    the block.

    Raises OSError if the file is missing, a link, or may not be opened.
    """
    descriptor = os.open(path, _WITHOUT_WAITING)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or not (
            stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        ):
            yield False
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process holds it, or a file system without locks
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
