"""The pictures of a folder: read completely once, and recognised by size and modification time afterwards."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from unseen.data.heif import readable
from unseen.data.ingest.collection import Content
from unseen.data.ingest.completeness import require_complete
from unseen.data.ingest.files.archive import is_hidden
from unseen.data.ingest.sources.folder import (
    CONVERT,
    SUFFIXES,
    Directory,
    enumerated,
    irregular_sentence,
    is_text,
    repeated_sentence,
    system_folders,
    system_sentence,
    unread_images,
    unread_sentence,
)
from unseen.data.ingest.workers import Damaged, Job, outcomes
from unseen.runtime.errors import UserError
from unseen.runtime.names import printable, say
from unseen.runtime.progress import track

RECENT = 2_000_000_000  # ns; the coarsest clock of a usual file system (FAT) has steps of two seconds


class Stamp(NamedTuple):
    """What changes with the content of a file."""

    size: int  # bytes
    mtime_ns: int | None  # modification time; None if it is too recent to show the next change


class Listed(NamedTuple):
    """The pictures of a folder."""

    paths: list[str]  # of the readable pictures, sorted
    sha256: list[str]
    stamps: list[Stamp]
    damaged: dict[str, str]  # path -> reason
    # path -> reason: images in formats that are not read, pipes and devices
    not_read: Mapping[str, str] = MappingProxyType({})


class Names(NamedTuple):
    """The names of the files below a folder."""

    pictures: list[str]  # sorted
    not_read: dict[str, str]  # as in Listed


def picture_names(files: Directory, command: str) -> Names:
    """The pictures below a folder by their suffix, without hidden files.

    The standard error lists what is omitted, in lines that begin with `command`: named pipes and devices,
    folders that a link names a second time, the number of files with other suffixes, and images in formats
    that are not read. Raises UserError if a folder cannot be listed.
    """
    every_name = files.names()
    names = [name for name in every_name if not is_hidden(name)]
    pictures = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    unread = unread_images(names)
    others = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in set(names) - set(pictures))
    lines = []
    if files.irregular:
        lines.append(f"warning: {irregular_sentence(files.irregular)}")
    if files.repeated:
        lines.append(f"warning: {repeated_sentence(files.repeated)}")
    if folders := system_folders(every_name):
        lines.append(system_sentence(folders))
    if others:
        lines.append(
            "skipped: " + ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(others.items()))
        )
    if unread:
        lines.append(f"warning: {unread_sentence(unread)} {CONVERT}")
    for line in lines:
        say(f"{command}: {line}")
    reasons = dict.fromkeys(unread, "a format that is not read") | dict.fromkeys(
        files.irregular, "a named pipe, socket or device"
    )
    return Names(pictures, {printable(name): reason for name, reason in reasons.items()})


def listed(
    photos: Path,
    processes: int | None = None,
    unchanged: Mapping[tuple[str, Stamp], str] | None = None,
    check: Callable[[list[str]], None] | None = None,
) -> Listed:
    """Reads every picture below a folder completely, except those in `unchanged`: sha256 by path and stamp.

    check: receives the names before a picture is read. The standard error lists what is omitted, as
    `picture_names` does. Raises UserError if a folder cannot be listed, or for a file name that is not UTF-8.
    """
    files = Directory(photos)
    pictures, not_read = picture_names(files, "catalog")
    undecoded = [printable(name) for name in pictures if not is_text(name)]
    if undecoded:
        raise UserError(f"{photos}: file names are not valid UTF-8: {enumerated(undecoded)}.", "Rename them.")
    if check is not None:
        check(pictures)
    stamps = {name: _stamp(photos / name) for name in pictures}
    known = unchanged or {}
    digests = {name: known[name, stamps[name]] for name in pictures if (name, stamps[name]) in known}
    to_read = [name for name in pictures if name not in digests]
    damaged = {}
    results = outcomes(to_read, Job(files.read, _digest), processes)
    for name, result in zip(track(to_read, "catalog: read", "pictures"), results, strict=True):
        if isinstance(result, Damaged):
            damaged[name] = result.reason
        else:
            digests[name] = result
    paths = [name for name in pictures if name in digests]
    return Listed(
        paths, [digests[name] for name in paths], [stamps[name] for name in paths], damaged, not_read
    )


def _stamp(path: Path) -> Stamp:
    """The stamp of a file.

    Its time is None if the next change could give the same time, or if the file cannot be read.
    """
    try:
        status = path.stat()
    except OSError:  # the reading reports it
        return Stamp(-1, None)
    return Stamp(status.st_size, status.st_mtime_ns if time.time_ns() - status.st_mtime_ns > RECENT else None)


def _digest(picture: Content) -> str:
    """sha256 of the file. Raises ValueError if it is not one complete picture."""
    assert isinstance(picture, bytes)
    require_complete(np.frombuffer(readable(picture), np.uint8))
    return hashlib.sha256(picture).hexdigest()
