"""Mount points, such as the volume of a container: renames cannot replace them; entries are exchanged.

The new entries wait in `.exchange.new` in the mount, which exists as soon as they are complete. Then the old
entries are deleted, the directory becomes `.exchange.moving`, and the new entries move out of it. A kill at
any time leaves one of the two names, and `complete_exchange` continues from there. Hidden entries and
`lost+found` of the file system stay.
"""

import os
import re
import shutil
from pathlib import Path

_NEW, _MOVING = ".exchange.new", ".exchange.moving"
_MOUNTS = Path("/proc/self/mountinfo")  # proc(5): the fifth field is the mount point, blanks as \040


def is_mount(path: Path) -> bool:
    """Whether a resolved path is a mount point, also a bind mount within one file system, which
    os.path.ismount does not see."""
    if os.path.ismount(path):
        return True
    lines = _MOUNTS.read_bytes().splitlines() if _MOUNTS.exists() else []
    points = (re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in lines)
    return os.fsencode(path) in points


def beside(path: Path, name: str) -> Path:
    """Where the entry `name` that belongs to a directory is: beside it, or in it if it is a mount point, so
    that it is on the same file system. In a mount point its name must begin with a dot."""
    path = Path(path).resolve()
    return path / name if is_mount(path) else path.with_name(name)


def is_free(path: Path) -> bool:
    """Whether a directory has no entries, except hidden ones and `lost+found`."""
    return path.is_dir() and not any(map(_is_replaced, path.iterdir()))


def exchange(new: Path, path: Path) -> None:
    """Replaces the entries of the mount point `path` by those of its directory `new`."""
    new.replace(path / _NEW)
    complete_exchange(path)


def complete_exchange(path: Path) -> None:
    """Completes an exchange that was killed."""
    new, moving = path / _NEW, path / _MOVING
    if new.is_dir():
        for entry in filter(_is_replaced, path.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        new.replace(moving)
    if moving.is_dir():
        for entry in moving.iterdir():
            entry.replace(path / entry.name)
        moving.rmdir()


def waiting(path: Path) -> Path | None:
    """The complete new entries of an exchange that has not replaced the old ones."""
    return path / _NEW if (path / _NEW).is_dir() else None


def _is_replaced(entry: Path) -> bool:
    return not entry.name.startswith(".") and entry.name != "lost+found"
