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

from unseen.runtime.errors import UserError
from unseen.runtime.flock import acquired, held
from unseen.runtime.memory import memory_problem
from unseen.runtime.mounts import beside, complete_exchange, exchange, waiting

_MAKE_SPACE = "Make space, then run the same command again."
# `dvc gc --workspace` is not an option: it deletes the cached models of all other commits.
_MAKE_SPACE_IN_PROJECT = """Make space in one of these ways, then run the same command again.
    Free space outside the project. This keeps every result.
    Move .dvc/cache to a larger disk, then run `dvc cache dir --local NEW_PATH`. This keeps every result.
    `unseen clean` keeps what the workspace, any commit, stash or experiment uses. It lists and deletes the
    other cached files: results of runs that were never committed."""
# of Rust, and of torch: "unable to mmap 9360 bytes from file <PATH>: Input/output error (5)"
_OS_ERROR = re.compile(r"\(os error (?P<rust>\d+)\)|file <(?P<file>.*)>: .* \((?P<torch>\d+)\)")
_NO_FILE = errno.EOPNOTSUPP  # of `regular`
_PARTIAL = re.compile(r"\..+\.[0-9a-f]{32}\.partial")


@contextlib.contextmanager
def unwritable_is_an_error(path: Path | None) -> Iterator[None]:
    """Turns a full disk, a missing permission and a failed device under `path` into a UserError."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        problem = system_problem(error, path)
        if problem is None:
            raise
        raise problem from error


def unreadable_is_an_error() -> contextlib.AbstractContextManager[None]:
    """Turns a missing permission, a failed device, and what `regular` refuses into a UserError. A file that
    does not exist stays a FileNotFoundError."""
    return unwritable_is_an_error(None)


def system_problem(error: Exception, path: Path | None = None) -> UserError | None:
    """The UserError for a problem of the disk, of permissions, of memory or of another limit of the system;
    None for another error. `path` is being written; without it, the error names its file.

    Libraries in Rust, such as safetensors, and torch give the number in the text.
    """
    if (problem := memory_problem(error)) is not None:
        return problem
    text = _OS_ERROR.search(str(error))
    number = error.errno if isinstance(error, OSError) else None
    if number is None and text is not None:
        number = int(text["rust"] or text["torch"])
    if number is None:
        return None
    filename = error.filename if isinstance(error, OSError) else text and text["file"]
    place = path if filename is None else Path(os.fsdecode(filename))
    reason = (isinstance(error, OSError) and error.strerror) or os.strerror(number)
    if number in (errno.ENOSPC, errno.EDQUOT):
        if place is None:
            return UserError(f"The output could not be written: {reason}.", _MAKE_SPACE)
        existing = _existing_parent(place if path is None else path)
        free = shutil.disk_usage(existing).free / 2**20
        is_project = any((parent / ".dvc").is_dir() for parent in (existing, *existing.parents))
        return UserError(
            f"The disk is full: {path or place} could not be written ({free:,.0f} MiB free on {existing}). "
            "The incomplete file was removed.",
            _MAKE_SPACE_IN_PROJECT if is_project else _MAKE_SPACE,
        )
    if number == errno.EFBIG:
        return UserError(
            f"{path or place or 'A file'} could not be written: {reason}. The incomplete file was removed.",
            "Raise the limit of the size of files (`ulimit -f`), or use a file system for larger files.",
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return UserError(
            f"{place or 'A file'} cannot be accessed: {reason}.",
            f"Allow it for this user (`ls -ld {_existing_parent(place)}` lists owner and permissions), or "
            "mount the file system writable. Then run the same command again.",
        )
    if number in (errno.EIO, errno.ESTALE, errno.ENXIO):
        return UserError(
            f"{place or 'A file'}: the disk or the network storage failed: {reason}.",
            "See the messages of the system (`dmesg`). Then run the same command again.",
        )
    if number in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, _NO_FILE):
        return UserError(f"{place or 'A path'} cannot be used: {reason}.", "Correct the path.")
    if number in (errno.EMFILE, errno.ENFILE):
        return UserError(
            f"{place or 'A file'} cannot be opened: {reason}.", "Raise the limit of open files (`ulimit -n`)."
        )
    return None


def _existing_parent(path: Path | None) -> Path:
    """The first of `path` and its parents that exists and may be reached."""
    path = Path.cwd() if path is None else Path(os.path.abspath(path))
    return next(parent for parent in (path, *path.parents) if os.path.exists(parent))


def regular(path: Path) -> Path:
    """`path`. Raises IsADirectoryError for a directory, and OSError for a named pipe, socket or device: a
    read of one may never end."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(_NO_FILE, "it is a named pipe, socket or device, not a file", str(path))
    return path


def require_replaceable(path: Path) -> None:
    """Raises UserError if `path` exists and is not a file, so that a file cannot or must not replace it. Call
    it before long work whose result is written there."""
    path = Path(path)
    if path.is_file() or not path.exists():
        return
    kind = "a directory" if path.is_dir() else "a named pipe, socket or device"
    raise UserError(f"{path} is {kind}, expected a file or a new path.", "Choose another path for the file.")


def create_directory(path: Path) -> None:
    """Creates a directory and its parents unless they exist. Raises UserError if a file is in the place of
    one of them, or if the file system creates none."""
    try:
        with accepting_files(path.parent):
            path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
        raise UserError(f"{file} is not a directory.", "Choose another path, or move this file.") from error


@contextlib.contextmanager
def accepting_files(directory: Path) -> Iterator[None]:
    """Turns the FileNotFoundError of a new file in a directory whose file system creates no files, such as
    /proc, into a UserError."""
    try:
        yield
    except FileNotFoundError as error:
        raise UserError(
            f"{directory} accepts no new file: {error.strerror}.", "Choose another directory."
        ) from error


def require_writable(*directories: Path) -> None:
    """Raises UserError if a file cannot be created in one of the directories. Missing ones are created. Call
    it before long work whose results are written there."""
    for directory in directories:
        with unwritable_is_an_error(directory):
            create_directory(directory)
            remove_partial_files(directory, "writable")
            probe = _partial(directory / "writable")
            probe.touch(exist_ok=False)
            probe.unlink(missing_ok=True)  # another process that checks the directory may have removed it


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields the path of an empty file in the directory of `path`. On success it is synced and renamed to
    `path`.

    On any error it is removed, and `path` does not change. The partial files of killed writers of `path` are
    removed first. Raises UserError if `path` is a directory, named pipe or device, which is never replaced.
    """
    path = Path(path)
    with unwritable_is_an_error(path):
        require_replaceable(path)
        create_directory(path.parent)
        remove_partial_files(path.parent, path.name)
        partial = _partial(path)
        partial.touch(0o666, exist_ok=False)  # the system applies the umask
        try:
            with held(partial):
                yield partial
                _sync(partial)
                partial.replace(path)
            _sync(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def remove_partial_files(directory: Path, target: str | None = None) -> None:
    """Removes the partial files of killed writers: those of the file `target` in `directory`, or without
    `target` those of every file in `directory` and below.

    A partial file that another process is still writing is locked and remains.
    """
    if target is None:
        partial = [path for path in directory.rglob(".*.partial") if _PARTIAL.fullmatch(path.name)]
    else:
        partial = [path for path in directory.glob(".*.partial") if _is_partial(path.name, target)]
    for path in partial:
        if not path.is_file():
            continue
        with acquired(path) as is_free:
            if is_free:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yields an empty directory in the parent of `path`. On success it is synced and replaces `path`.

    The old directory is renamed to `.NAME.replaced`, the new one is renamed to `path`, then the old one
    is deleted. On any error the new directory is removed, and `path` does not change. After a kill the old
    or the new directory is complete: at `path`, or, between the two renames, at `.NAME.replaced`, from where
    `restore_directory` restores it. The remains of a killed process are removed first, so that only one
    process at a time may write `path`. The new directory is locked, so that those of killed processes are
    recognised (leftovers.py). If `path` is a link, its target is replaced. Of a mount point the entries are
    exchanged (mounts.py).
    """
    with unwritable_is_an_error(Path(path)):
        path = Path(path).resolve()
        create_directory(path.parent)
        restore_directory(path)
        partial = beside(path, _partial(path).name)
        for entry in partial.parent.iterdir():
            if _is_partial(entry.name, path.name) and entry.is_dir():
                _remove_directory(entry)
        partial.mkdir()  # the system applies the umask
        try:
            with held(partial):
                yield partial
                for file in sorted(partial.rglob("*")):
                    _sync(file)
                _sync(partial)
                if partial.parent == path:
                    exchange(partial, path)
                else:
                    if path.is_dir():
                        path.replace(_replaced(path))
                    partial.replace(path)
            _sync(partial.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            restore_directory(path)


def restore_directory(path: Path) -> None:
    """Completes the replacement of `path` after `atomic_directory` was killed.

    Restores the old directory if `path` is missing, else deletes it. A program that reads `path` before it
    writes it again must call this first.
    """
    path = Path(path).resolve()
    complete_exchange(path)
    replaced = _replaced(path)
    if not replaced.exists():
        return
    if path.exists():
        partial = _partial(path)  # an incompletely deleted directory must not be restored
        with held(replaced):
            replaced.replace(partial)
            _remove_directory(partial)
    else:
        replaced.replace(path)


def complete_directory(path: Path) -> Path:
    """Where a reader finds the directory that `atomic_directory` wrote last: at `path`, or between its two
    renames, also after a kill there, at `.NAME.replaced`; in a mount point, before the exchange, in it."""
    path = Path(path)
    if (complete := waiting(path)) is not None:
        return complete
    replaced = _replaced(path.resolve())
    return replaced if not path.exists() and replaced.exists() else path


def _remove_directory(path: Path) -> None:
    """Deletes a directory that another process may be deleting, too."""
    while path.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def json_text(value: Any) -> str:
    """`value` with sorted keys, an indent of two spaces and a final newline, so that equal values give equal
    text. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Writes the text of `value` (json_text)."""
    text = json_text(value)
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
