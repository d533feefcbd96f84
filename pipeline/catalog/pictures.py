"""The pictures of a folder: read completely once, and recognised by size and modification time afterwards."""

import hashlib
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from pipeline.data.heif import readable
from pipeline.ingest.collection import Content
from pipeline.ingest.completeness import require_complete
from pipeline.ingest.files.archive import is_hidden
from pipeline.ingest.sources.folder import (
    CONVERT,
    SUFFIXES,
    Directory,
    enumerated,
    irregular_sentence,
    is_text,
    unread_images,
    unread_sentence,
)
from pipeline.ingest.workers import Damaged, Job, outcomes
from pipeline.runtime.errors import UserError
from pipeline.runtime.names import printable
from pipeline.runtime.progress import track

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


def listed(
    photos: Path, processes: int | None = None, unchanged: Mapping[tuple[str, Stamp], str] | None = None
) -> Listed:
    """Reads every picture below a folder completely, except those in `unchanged`: sha256 by path and stamp.

    Files without the suffix of a picture are skipped and counted; hidden files are ignored. A warning lists
    images in formats that are not read. Raises UserError if a folder cannot be listed, or for a file name
    that is not UTF-8.
    """
    files = Directory(photos)
    names = [name for name in files.names() if not is_hidden(name)]
    if files.irregular:
        sys.stderr.write(f"catalog: warning: {printable(irregular_sentence(files.irregular))}\n")
    pictures = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES]
    others = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in set(names) - set(pictures))
    if others:
        counts = ", ".join(f"{count:,} {suffix}" for suffix, count in sorted(others.items()))
        sys.stderr.write(f"catalog: skipped: {printable(counts)}\n")
    undecoded = [printable(name) for name in pictures if not is_text(name)]
    if undecoded:
        raise UserError(f"{photos}: file names are not valid UTF-8: {enumerated(undecoded)}.", "Rename them.")
    if unread := unread_images(names):
        sys.stderr.write(f"catalog: warning: {printable(unread_sentence(unread))} {CONVERT}\n")
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
    return Listed(paths, [digests[name] for name in paths], [stamps[name] for name in paths], damaged)


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
