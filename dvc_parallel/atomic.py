"""The replacement of a file as a whole, and the repair of files that a killed DVC leaves damaged."""

import os
import sys
from collections.abc import Callable
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Writes `content` beside `path`, syncs it and renames it to `path`. The caller holds a lock of the file.

    On any error `path` does not change.
    """
    partial = partial_of(path)
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def partial_of(path: Path) -> Path:
    """The file beside `path` that `replace` writes."""
    return path.with_name(f".{path.name}.partial")


def repair(
    path: Path,
    lock: Path,
    is_damaged: Callable[[Path], bool],
    repaired: Callable[[Path], tuple[bytes | None, str]],
    wait: bool = False,
) -> None:
    """Replaces a damaged file by what `repaired` returns, or removes it (None), and prints what was done.

    lock: what DVC holds while it writes the file. wait: for it; otherwise DVC's LockError after its limit.
    """
    if not is_damaged(path):
        return
    from dvc.lock import make_lock

    lock.parent.mkdir(parents=True, exist_ok=True)
    with make_lock(str(lock), tmp_dir=str(lock.parent), wait=wait):
        if not is_damaged(path):
            return
        content, done = repaired(path)
        if content is None:
            path.unlink()
        else:
            replace(path, content)
    sys.stderr.write(f"{done}\n")
    sys.stderr.flush()
