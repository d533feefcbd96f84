"""Files and directories that are replaced as a whole: written under another name, synced, renamed.

After a crash a file is the old or the new one. A directory is the old or the new one too, but between two
renames the old one is at `.NAME.replaced` for a moment; the next writer puts it back.
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

# `dvc gc --workspace` is not among them: it deletes the cached models of every other commit.
_MAKE_SPACE = """Make space in one of these ways, then run the same command again.
    Free space outside the project. This keeps every result.
    Move .dvc/cache to a larger disk, then run `dvc cache dir --local NEW_PATH`. This keeps every result.
    `dvc gc --all-commits --all-experiments` keeps what the workspace, any commit or any experiment uses.
    It deletes the other cached files: results of runs that were never committed. `--dry` lists them."""


@contextlib.contextmanager
def full_disk_is_an_error(path: Path) -> Iterator[None]:
    """Turns "no space left" and "quota exceeded" under `path` into a UserError with the free space."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        existing = next(p for p in (path, *path.parents) if p.exists())
        free = shutil.disk_usage(existing).free / 2**20
        raise UserError(
            f"The disk is full: {path} could not be written ({free:,.0f} MiB free on {existing}). Nothing "
            "half-written was left.",
            _MAKE_SPACE,
        ) from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields the path of an empty file beside `path`. On success it is synced and renamed to `path`.

    On any error it is removed, and `path` stays as it was.
    """
    path = Path(path)
    with full_disk_is_an_error(path):
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
    """Yields an empty directory beside `path`. On success it is synced and takes the place of `path`.

    The old directory is renamed to `.NAME.replaced`, the new one is renamed to `path`, then the old one
    is deleted. On any error the new directory is removed, and `path` stays as it was. A process that is
    killed leaves the old or the new directory whole: at `path`, or, between the two renames, at
    `.NAME.replaced`, from where `restore_directory` puts it back. Leftovers of a killed process are
    removed first, so only one process at a time may write `path`. If `path` is a link, the directory that
    it names is replaced.
    """
    with full_disk_is_an_error(Path(path)):
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
    """Completes the replacement of `path` that a killed `atomic_directory` left half done.

    Puts the old directory back if `path` is missing, else deletes it. A program that reads `path` before it
    writes it again calls this first.
    """
    path = Path(path).resolve()
    replaced = _replaced(path)
    if not replaced.exists():
        return
    if path.exists():
        partial = _partial(path)  # a directory that is half deleted must not come back
        replaced.replace(partial)
        shutil.rmtree(partial)
    else:
        replaced.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` with sorted keys, two spaces and a final newline: same value, same bytes. NaN and
    infinity are refused."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _partial(path: Path) -> Path:
    """A new name beside `path` for what will replace it."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")


def _is_partial(name: str, target: str) -> bool:
    """Whether a killed process left `name` while it wrote `target`, not another one such as `target`.v2."""
    return re.fullmatch(rf"\.{re.escape(target)}\.[a-z0-9_]+\.partial", name) is not None


def _replaced(path: Path) -> Path:
    """Where the old directory is while the new one is renamed to `path`."""
    return path.with_name(f".{path.name}.replaced")
