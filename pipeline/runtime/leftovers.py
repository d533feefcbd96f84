"""Temporary directories that a killed process left behind.

A process holds an flock on the file `owner` in each temporary directory while it uses the directory. The
kernel releases the lock when the process ends, however it ends. So a directory whose `owner` is not locked is
left over. On a file system without locks no directory is removed. Partial files have locks too (files.py).
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline.runtime.files import remove_partial_files

OWNER = "owner"
_AGE = 10.0  # seconds; a younger file may be one that its process has not locked yet


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Creates the file `path`, which must not exist, and holds its lock during the block."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)  # the system applies the umask
    try:
        with contextlib.suppress(OSError):  # a file system without locks: the file is never a leftover
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_abandoned(path: Path) -> bool:
    """Whether `path` exists, is a few seconds old, and no process holds its lock."""
    try:
        if time.time() - path.stat().st_mtime < _AGE:
            return False
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # removed meanwhile, or of another user
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_leftovers(root: Path) -> None:
    """Removes what killed stages left behind in the project `root` and under RAY_TMPDIR.

    Partial files in data/metrics and data/history, which are in git, and the directories of
    `remove_leftover_directories`.
    """
    for folder in ("data/metrics", "data/history"):
        remove_partial_files(root / folder)
    remove_leftover_directories(root)


def remove_leftover_directories(root: Path) -> None:
    """Removes files of Ray's training workers in data/state/ray, and directories of private clusters."""
    remove_abandoned(root / "data/state/ray", "*")
    remove_abandoned(cluster_files(), "unseen-*")


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Removes the directories of `parent` whose file `owner` is abandoned."""
    for owner in parent.glob(f"{pattern}/{OWNER}"):
        if is_abandoned(owner):
            shutil.rmtree(owner.parent, ignore_errors=True)


def cluster_files() -> Path:
    """The directory of the logs and sockets of private Ray clusters: RAY_TMPDIR, default /tmp."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp"))
