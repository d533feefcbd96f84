"""Downloads the files of a data set from its authors' servers. The command is `unseen data cub`.

A file is written to `.NAME.partial` beside its target, checked against its published size and hashes, and
renamed. A download resumes where a broken connection or a killed process stopped (RFC 9110, section 14). A
file that was assembled from several responses and has another hash is downloaded once more in one response,
because it may have changed on the server between the responses.
"""

import fcntl
import hashlib
import http.client
import os
import re
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import BinaryIO

from unseen.data.ingest.releases import PUBLISHED, Published, PublishedFile
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import (
    accepting_files,
    create_directory,
    require_replaceable,
    unwritable_is_an_error,
)
from unseen.runtime.names import say
from unseen.runtime.progress import Progress

PIECE = 2**20  # bytes per read
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 6  # consecutive attempts without a byte before the download fails
WAIT = 1.0  # seconds before the second attempt; doubled for each further one
_TEMPORARY = (408, 425, 429, 500, 502, 503, 504)  # HTTP status codes after which another attempt may succeed


def fetch(dataset: str, folder: str) -> None:
    """Downloads the published files of a data set to a folder."""
    if dataset not in PUBLISHED:
        raise UserError(
            f"Unknown published data set {dataset!r}.", f"Write one of: {', '.join(sorted(PUBLISHED))}."
        )
    published = PUBLISHED[dataset]
    if published.linked_layout is None:
        raise UserError(
            f"{published.title} has no official direct link.",
            f"{published.advice} Its page is or was {published.page}. Put into {folder}: "
            f"{published.layouts_text()}.",
        )
    for file in published.linked_layout:
        download(file, Path(folder) / file.folder, published)


def download(file: PublishedFile, folder: Path, published: Published) -> Path:
    """Downloads one file, unless it exists already, and returns its path.

    Raises UserError if the server has no such file, offers another size, stops responding, or sends bytes
    with another hash; if a file of that name exists with another hash; if another process downloads it; and
    if the disk is too small or the folder cannot be created.
    """
    target = folder / file.name
    remedy = f"Look at {published.page}. {published.advice}".rstrip()
    require_replaceable(target)
    if target.exists():
        if difference := mismatch(target, file):
            raise UserError(
                f"{target} already exists, and it {difference}.",
                "Move it to another place to download the published file, or name it as the source.",
            )
        return target
    partial = folder / f".{file.name}.partial"
    with unwritable_is_an_error(target):
        create_directory(folder)
        with accepting_files(folder):
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
    with unwritable_is_an_error(target), os.fdopen(descriptor, "r+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another process is fetching {target}.", "Wait until it ends.") from None
        in_one_response = _complete(sink, file, remedy)
        difference = mismatch(partial, file)
        if difference and not in_one_response:
            _truncate(sink)
            _complete(sink, file, remedy)
            difference = mismatch(partial, file)
        if difference:
            partial.unlink()
            raise UserError(f"{file.url} is not the published {file.name}: it {difference}.", remedy)
        os.fsync(sink.fileno())
        partial.replace(target)
    if file.md5 is None and file.sha256 is None:
        say(f"{target} was not checked: its authors publish no hash. Its sha256 is {sha256_of(target)}.")
    return target


def mismatch(path: Path, file: PublishedFile) -> str | None:
    """The difference between a file and the published one, as the end of a sentence; None if size and hashes
    are equal."""
    if file.size is not None and (size := path.stat().st_size) != file.size:
        return f"has {size:,} bytes instead of {file.size:,}"
    for kind, expected in (("md5", file.md5), ("sha256", file.sha256)):
        if expected is not None:
            with open(path, "rb") as content:
                digest = hashlib.file_digest(content, kind).hexdigest()
            if digest != expected:
                return f"has {kind} {digest} instead of {expected}"
    return None


def _complete(sink: BinaryIO, file: PublishedFile, remedy: str) -> bool:
    """Appends the missing bytes of the file to `sink`, over as many connections as necessary. Returns whether
    one response contained the whole file."""
    failures, responses = 0, int(sink.seek(0, os.SEEK_END) > 0)
    pieces = None if file.size is None else -(-file.size // PIECE)
    with Progress(f"fetch {file.name}", pieces, "MiB") as progress:
        progress.resume_at(sink.seek(0, os.SEEK_END) // PIECE)
        while True:
            before = sink.seek(0, os.SEEK_END)
            try:
                responses = 1 if before == 0 else responses + 1
                if _receive(sink, file, progress, remedy):
                    return responses == 1
                reason = f"the connection ended after {sink.tell():,} bytes"
            except urllib.error.HTTPError as error:
                reason = f"the server responds {error.code} {error.reason}"
                if error.code not in _TEMPORARY:
                    raise UserError(f"{file.url} cannot be fetched: {reason}.", remedy) from None
            except (http.client.HTTPException, urllib.error.URLError, ConnectionError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            failures = 0 if sink.seek(0, os.SEEK_END) > before else failures + 1
            if failures == ATTEMPTS:
                raise UserError(
                    f"{file.url} cannot be fetched: {reason}, {ATTEMPTS} times in a row.",
                    f"Run the same command later; it resumes the download. {remedy}",
                )
            progress.advance(0, note=reason)
            time.sleep(WAIT * 2 ** max(failures - 1, 0))


def _receive(sink: BinaryIO, file: PublishedFile, progress: Progress, remedy: str) -> bool:
    """Appends the bytes of one connection to `sink`. Returns whether the file is complete."""
    assert file.url is not None
    begin = sink.tell()
    if begin == file.size:
        return True
    if file.size is not None and begin > file.size:
        begin = _truncate(sink)
    headers = {"Range": f"bytes={begin}-", "Accept-Encoding": "identity", "User-Agent": "unseen"}
    request = urllib.request.Request(file.url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not begin:
            raise
        if file.size is None and _range_total(error.headers) == begin:
            return True
        _truncate(sink)  # the partial file is longer than the file on the server
        return False
    with response:
        is_range = response.status == 206
        if not is_range or _range_start(response.headers) != begin:
            # The server does not support ranges and sends the whole file, or it sends another range.
            begin = _truncate(sink)
            progress.resume_at(0)
            if is_range:
                return False
        total = _range_total(response.headers) if is_range else _content_length(response.headers)
        if file.size is not None and total is not None and total != file.size:
            raise UserError(
                f"{file.url} has {total:,} bytes; the published {file.name} has {file.size:,}.", remedy
            )
        disk = os.fstatvfs(sink.fileno())
        if total is not None and (free := disk.f_bavail * disk.f_frsize) < total - begin:
            raise UserError(
                f"{file.name} needs {total - begin:,} more bytes; the disk has {free:,} free.",
                "Free some space.",
            )
        while (file.size is None or sink.tell() <= file.size) and (piece := response.read1(PIECE)):
            sink.write(piece)
            progress.advance(sink.tell() // PIECE - progress.done)
        sink.flush()
    size = file.size if file.size is not None else total
    return sink.tell() >= size if size is not None else True


def _truncate(sink: BinaryIO) -> int:
    """Deletes the content of `sink` and returns 0, the new position."""
    sink.seek(0)
    return sink.truncate()


def _range_start(headers: Message) -> int | None:
    match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _range_total(headers: Message) -> int | None:
    match = re.search(r"/(\d+)$", headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _content_length(headers: Message) -> int | None:
    length = headers.get("Content-Length")
    return int(length) if length is not None and length.isdecimal() else None
