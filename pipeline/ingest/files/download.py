"""Downloads the files of a data set from where its authors publish them; the command is `unseen data cub`.

A file is written beside its place as `.NAME.partial`, checked against its published size and hashes, and
renamed. Where a broken connection or a killed process left off, the next one goes on (RFC 9110, section 14).
A file that was put together from several answers and does not have the published hash is fetched once more in
one piece: it may have been another one by then.
"""

import fcntl
import hashlib
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from typing import BinaryIO

from pipeline.ingest.releases import PUBLISHED, Published, PublishedFile
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import full_disk_is_an_error
from pipeline.runtime.progress import Progress

PIECE = 2**20  # bytes
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 6  # in a row that bring nothing
WAIT = 1.0  # seconds before the second attempt; doubled for each further one
_LATER = (408, 425, 429, 500, 502, 503, 504)  # answers of a server that may do better in a moment


def fetch(dataset: str, folder: str) -> None:
    """Puts the published files of a data set into a folder."""
    if dataset not in PUBLISHED:
        raise UserError(
            f"There is no published data set {dataset!r} here.",
            f"Write one of: {', '.join(sorted(PUBLISHED))}.",
        )
    published = PUBLISHED[dataset]
    if published.linked is None:
        raise UserError(
            f"{published.title} has no official direct link.",
            f"{published.advice} Its page was or is {published.page}. Put into {folder}: "
            f"{published.wanted()}.",
        )
    for file in published.linked:
        download(file, Path(folder) / file.folder, published)


def download(file: PublishedFile, folder: Path, published: Published) -> Path:
    """Fetches one file unless it is there already, and returns its path.

    Raises UserError when the server has no such file, offers another size, stops answering, or gives bytes
    with another hash; when a file of that name is there with another hash; when another process is fetching
    it; and when the disk is too small.
    """
    target = folder / file.name
    elsewhere = f"Look at {published.page}. {published.advice}".rstrip()
    if target.exists():
        if found := mismatch(target, file):
            raise UserError(
                f"{target} is there already, and {found}.",
                "Move it away to have it fetched, or keep it and name it as the source.",
            )
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{file.name}.partial"
    with (
        full_disk_is_an_error(target),
        os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as sink,
    ):
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"Another process is fetching {target}.", "Wait for it to end.") from None
        in_one_piece = _fill(sink, file, elsewhere)
        found = mismatch(partial, file)
        if found and not in_one_piece:
            _restart(sink)
            _fill(sink, file, elsewhere)
            found = mismatch(partial, file)
        if found:
            partial.unlink()
            raise UserError(f"{file.url} is not the published {file.name}: it {found}.", elsewhere)
        os.fsync(sink.fileno())
        partial.replace(target)
    if file.md5 is None and file.sha256 is None:
        sys.stderr.write(
            f"{target} could not be checked: its authors publish no hash. Its sha256 is "
            f"{sha256_of(target)}.\n"
        )
    return target


def mismatch(path: Path, file: PublishedFile) -> str | None:
    """How a file differs from the published one, as the end of a sentence; None when size and hashes are
    those."""
    if file.size is not None and (size := path.stat().st_size) != file.size:
        return f"has {size:,} bytes instead of {file.size:,}"
    for kind, expected in (("md5", file.md5), ("sha256", file.sha256)):
        if expected is not None:
            with open(path, "rb") as content:
                digest = hashlib.file_digest(content, kind).hexdigest()
            if digest != expected:
                return f"has {kind} {digest} instead of {expected}"
    return None


def _fill(sink: BinaryIO, file: PublishedFile, elsewhere: str) -> bool:
    """Appends to `sink` what is missing of the file, over as many connections as it takes. Returns whether
    one answer brought it all."""
    failures, answers = 0, int(sink.seek(0, os.SEEK_END) > 0)
    with Progress(
        f"fetch {file.name}", None if file.size is None else -(-file.size // PIECE), "MiB"
    ) as progress:
        progress.resume_at(sink.seek(0, os.SEEK_END) // PIECE)
        while True:
            before = sink.seek(0, os.SEEK_END)
            try:
                answers = 1 if before == 0 else answers + 1
                if _receive(sink, file, progress, elsewhere):
                    return answers == 1
                reason = f"the connection ended after {sink.tell():,} bytes"
            except urllib.error.HTTPError as error:
                if error.code not in _LATER:
                    raise UserError(
                        f"{file.url} cannot be fetched: the server answers {error.code} {error.reason}.",
                        elsewhere,
                    ) from None
                reason = f"the server answers {error.code} {error.reason}"
            except (http.client.HTTPException, urllib.error.URLError, ConnectionError, TimeoutError) as error:
                reason = str(error) or type(error).__name__
            failures = 0 if sink.seek(0, os.SEEK_END) > before else failures + 1
            if failures == ATTEMPTS:
                raise UserError(
                    f"{file.url} cannot be fetched: {reason}, {ATTEMPTS} times in a row.",
                    f"Run the same command later: it goes on. {elsewhere}",
                )
            progress.advance(0, note=reason)
            time.sleep(WAIT * 2 ** max(failures - 1, 0))


def _receive(sink: BinaryIO, file: PublishedFile, progress: Progress, elsewhere: str) -> bool:
    """One connection. Returns whether the file is whole."""
    assert file.url is not None
    begin = sink.tell()
    if begin == file.size:
        return True
    if file.size is not None and begin > file.size:
        begin = _restart(sink)
    request = urllib.request.Request(
        file.url, headers={"Range": f"bytes={begin}-", "Accept-Encoding": "identity", "User-Agent": "unseen"}
    )
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if (
            error.code == 416 and begin
        ):  # nothing lies beyond what is there: either that is all, or it is too much
            if file.size is None and _total(error.headers) == begin:
                return True
            _restart(sink)
            return False
        raise
    with answer:
        if (
            answer.status != 206 or _first(answer.headers) != begin
        ):  # a server that knows no ranges sends all, one that lies sends anything
            begin = _restart(sink)
            progress.resume_at(0)
            if answer.status == 206:
                return False
        total = (
            _total(answer.headers) if answer.status == 206 else _integer(answer.headers.get("Content-Length"))
        )
        if file.size is not None and total is not None and total != file.size:
            raise UserError(
                f"{file.url} has {total:,} bytes; the published {file.name} has {file.size:,}.", elsewhere
            )
        disk = os.fstatvfs(sink.fileno())
        if total is not None and (free := disk.f_bavail * disk.f_frsize) < total - begin:
            raise UserError(
                f"{file.name} takes {total - begin:,} more bytes, the disk has room for {free:,}.",
                "Free some space.",
            )
        while (file.size is None or sink.tell() <= file.size) and (piece := answer.read1(PIECE)):
            sink.write(piece)
            progress.advance(sink.tell() // PIECE - progress.done)
        sink.flush()
    size = file.size if file.size is not None else total
    return sink.tell() >= size if size is not None else True


def _restart(sink: BinaryIO) -> int:
    """Throws away what is there."""
    sink.seek(0)
    return sink.truncate()


def _first(headers: Message) -> int | None:
    match = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _total(headers: Message) -> int | None:
    match = re.search(r"/(\d+)$", headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
