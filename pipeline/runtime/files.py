"""Replaces files and directories as a whole: writes under another name, syncs, renames.

After a crash a file has the old or the new content. So has a directory, except that between two renames the
old directory is at `.NAME.replaced`; the next writer restores it.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.runtime.errors import UserError

# `dvc gc --workspace` is not an option: it deletes the cached models of all other commits.
_MAKE_SPACE = """Make space in one of these ways, then run the same command again.
    Free space outside the project. This keeps every result.
    Move .dvc/cache to a larger disk, then run `dvc cache dir --local NEW_PATH`. This keeps every result.
    `dvc gc --all-commits --all-experiments` keeps what the workspace, any commit or any experiment uses.
    It deletes the other cached files: results of runs that were never committed. `--dry` lists them."""


@contextlib.contextmanager
def unwritable_is_an_error(path: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" under `path` into a UserError with the free space."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        free = shutil.disk_usage(existing).free / 2**20
        raise UserError(
            f"The disk is full: {path} could not be written ({free:,.0f} MiB free on {existing}). The "
            "incomplete file was removed.",
            _MAKE_SPACE,
        ) from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields the path of an empty file in the directory of `path`. On success it is synced and renamed to
    `path`.

    On any error it is removed, and `path` does not change.
    """
    path = Path(path)
    with unwritable_is_an_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(path)
        partial.touch(0o666, exist_ok=False)  # the system applies the umask
        try:
            yield partial
            _sync(partial)
            partial.replace(path)
            _sync(path.parent)
        finally:
            partial.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory in the parent of `path`. On success it is synced and replaces `path`.

    The old directory is renamed to `.NAME.replaced`, the new one is renamed to `path`, then the old one
    is deleted. On any error the new directory is removed, and `path` does not change. After a kill the old
    or the new directory is complete: at `path`, or, between the two renames, at `.NAME.replaced`, from where
    `restore_directory` restores it. The remains of a killed process are removed first, so that only one
    process at a time may write `path`. If `path` is a link, its target is replaced.
    """
    with unwritable_is_an_error(Path(path)):
        path = Path(path).resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        restore_directory(path)
        for entry in path.parent.iterdir():
            if _is_partial(entry.name, path.name) and entry.is_dir():
                shutil.rmtree(entry)
        partial = _partial(path)
        partial.mkdir()  # the system applies the umask
        try:
            yield partial
            for file in sorted(partial.rglob("*")):
                _sync(file)
            _sync(partial)
            if path.is_dir():
                path.replace(_replaced(path))
            partial.replace(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            restore_directory(path)


def restore_directory(path: Path) -> None:
    """Completes the replacement of `path` after `atomic_directory` was killed.

    Restores the old directory if `path` is missing, else deletes it. A program that reads `path` before it
    writes it again must call this first.
    """
    path = Path(path).resolve()
    replaced = _replaced(path)
    if not replaced.exists():
        return
    if path.exists():
        partial = _partial(path)  # an incompletely deleted directory must not be restored
        replaced.replace(partial)
        shutil.rmtree(partial)
    else:
        replaced.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` with sorted keys, an indent of two spaces and a final newline, so that equal values give
    equal bytes. Raises ValueError for NaN and infinity."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _partial(path: Path) -> Path:
    """A new path in the same directory, for the replacement of `path`."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


def _is_partial(name: str, target: str) -> bool:
    """Whether `name` is a partial file or directory of `target`, and not of another name such as
    `target`.v2."""
    return re.fullmatch(rf"\.{re.escape(target)}\.[a-z0-9_]+\.partial", name) is not None


def _replaced(path: Path) -> Path:
    """The path of the old directory while the new one is renamed to `path`."""
    return path.with_name(f".{path.name}.replaced")
