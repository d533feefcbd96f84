"""Which files of a data set were compared with their sha256, so that a training does not read them all again.

    data/shards/.<dataset>.verified.json    size, times and inode of each file, and the sha256 that it had

A file is unchanged if all of these are. A file that was written within the last seconds before its
verification is not recorded: a later write in the same tick of the clock would have the same time. The record
saves time only; without it, or if it is damaged, all files are read.
"""

import json
import time
from collections.abc import Mapping
from pathlib import Path

from pipeline.runtime.digest import sha256_of
from pipeline.runtime.files import write_json

SETTLED = 3.0  # seconds since the last write of a file that is recorded
Stamp = list[int | str]


def record_of(directory: Path) -> Path:
    """The record of the data set in `directory`."""
    return directory.parent / f".{directory.name}.verified.json"


def first_difference(directory: Path, hashes: Mapping[str, str], remember: bool) -> tuple[Path, str] | None:
    """The first file whose sha256 differs from that in `hashes`, and its sha256; None if all are equal.

    With `remember`, files that are unchanged since an earlier call are not read, and this one is recorded.
    """
    record = record_of(directory)
    known = _read(record) if remember else {}
    stamps: dict[str, Stamp] = {}
    for name, expected in hashes.items():
        path = directory / name
        stamp = _stamp(path, expected)
        if known.get(name) != stamp and (digest := sha256_of(path)) != expected:
            return path, digest
        if time.time() - path.stat().st_mtime > SETTLED:
            stamps[name] = stamp
    if remember and stamps != known:
        write_json(record, stamps)
    return None


def _stamp(path: Path, expected: str) -> Stamp:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, expected]


def _read(record: Path) -> dict[str, Stamp]:
    try:
        content = json.loads(record.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
