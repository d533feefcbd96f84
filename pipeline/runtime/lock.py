"""A lock file that one process of a machine holds at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.files import accepting_files, create_directory, unwritable_is_an_error


@contextlib.contextmanager
def exclusive(path: Path, work: str) -> Iterator[None]:
    """Holds the lock file `path`, which contains the id of this process, and removes it at the end.

    The system releases the lock of a process that ends in any way, so a file that a killed process left is
    taken over. Raises UserError with `work` if another process holds the lock, and on a file system without
    locks.
    """
    with unwritable_is_an_error(path):
        create_directory(path.parent)
        with accepting_files(path.parent):
            descriptor = _acquired(path, work)
    try:
        with unwritable_is_an_error(path):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _acquired(path: Path, work: str) -> int:
    """The descriptor of the locked file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise UserError(
                f"Another process ({holder}) {work}: it holds {path}.", "Wait until it ends, or end it."
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise UserError(
                f"{path} cannot be locked: {error.strerror}. Two processes could write the same files.",
                "Use a directory on a file system with locks, such as a local disk, or mount NFS with locks.",
            ) from error
        # The process that held the lock may have removed the file between the opening and the locking.
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)
