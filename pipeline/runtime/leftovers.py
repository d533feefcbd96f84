"""Temporary directories that a killed process left behind.

A process holds the lock (flock.py) of the file `owner` in each temporary directory while it uses the
directory, so a directory whose `owner` is not locked is left over. Partial files and directories (files.py)
and the folders of unpacked archives (`.NAME.*.scratch`) are locked themselves.
"""

import contextlib
import os
import shutil
import time
from pathlib import Path

from unseen.runtime.files import remove_partial_files
from unseen.runtime.flock import acquired, held

OWNER = "owner"
_AGE = 10.0  # seconds; a younger file may be one that its process has not locked yet
_NOT_OUTPUTS = ("raw", "state")  # folders of data/ without partial directories, maybe with millions of files
_DEPTH = 4  # an output is at most as many folders below data/FOLDER
_PATTERNS = (".*.partial", ".*.scratch")


def owned(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Creates the file `owner` in a new directory, and holds its lock during the block."""
    return held(directory / OWNER, os.O_CREAT | os.O_EXCL | os.O_RDWR)


def is_abandoned(path: Path) -> bool:
    """Whether `path` exists, is a few seconds old, and no process holds its lock."""
    try:
        if time.time() - path.stat().st_mtime < _AGE:
            return False
        with acquired(path) as is_free:
            return is_free
    except OSError:  # removed meanwhile, or of another user
        return False


def remove_leftovers(root: Path) -> None:
    """Removes what killed stages left behind in the project `root` and under RAY_TMPDIR.

    Partial files in data/metrics and data/history, which are in git, and the directories of
    `remove_leftover_directories`.
    """
    for folder in ("data/metrics", "data/history"):
        remove_partial_files(root / folder)
    remove_leftover_directories(root)


def remove_leftover_directories(root: Path) -> None:
    """Removes files of Ray's training workers in data/state/ray, directories of private clusters, and the
    partial directories and unpacked archives of killed stages beside their outputs.

    A stage that runs again removes its own. But DVC may restore its outputs from the run cache instead.
    """
    remove_abandoned(root / "data/state/ray", "*")
    remove_abandoned(cluster_files(), "unseen-*")
    for path in _partial_directories(root / "data"):
        if is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _partial_directories(data: Path) -> list[Path]:
    """The partial directories and unpacked archives beside the outputs below `data`, in use or not."""
    folders = [folder for folder in data.glob("*") if folder.is_dir() and folder.name not in _NOT_OUTPUTS]
    parents = [data, *folders]
    for _ in range(_DEPTH - 1):
        folders = [child for folder in folders for child in folder.glob("[!.]*") if child.is_dir()]
        parents += folders
    paths = (path for parent in parents for pattern in _PATTERNS for path in parent.glob(pattern))
    return [path for path in paths if path.is_dir()]


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Removes the directories of `parent` whose file `owner` is abandoned."""
    for owner in parent.glob(f"{pattern}/{OWNER}"):
        if is_abandoned(owner):
            shutil.rmtree(owner.parent, ignore_errors=True)


def cluster_files() -> Path:
    """The directory of the logs and sockets of private Ray clusters: RAY_TMPDIR, default /tmp."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp"))
