"""Files that appear whole or not at all: written aside, synced, renamed."""

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.runtime.errors import UserError

# `dvc gc --workspace` is not among them: it deletes the cached models of every other commit.
_MAKE_SPACE = """Make space in one of these ways, then run the same command again.
    Free space outside the project. This keeps every result.
    Move DVC's cache to a larger disk: move .dvc/cache, then `dvc cache dir --local NEW_PATH`. This keeps every result.
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
            f"The disk is full: {path} could not be written ({free:,.0f} MiB free on {existing}). "
            "Nothing half-written was left.",
            _MAKE_SPACE,
        ) from error


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to; on success it is synced and renamed to `path`, on any error it is removed."""
    path = Path(path)
    with full_disk_is_an_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
        os.close(handle)
        aside = Path(name)
        try:
            yield aside
            _sync(aside)
            aside.chmod(0o666 & ~_umask())
            aside.replace(path)
            _sync(path.parent)
        finally:
            aside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory beside `path` to fill; on success it takes the place of `path`, on any error it is removed.

    What a killed process left beside `path` is removed first: one process at a time writes an out.
    """
    path = Path(path)
    with full_disk_is_an_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*.partial"):
            shutil.rmtree(leftover)
        aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
        try:
            yield aside
            for file in sorted(aside.rglob("*")):
                _sync(file)
            aside.chmod(0o777 & ~_umask())
            if path.exists():
                shutil.rmtree(path)
            aside.replace(path)
            _sync(path.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` with sorted keys, two spaces and a final newline: same value, same bytes. NaN and infinity are refused."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
