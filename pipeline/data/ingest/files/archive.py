"""Reads zip archives without extracting them, and refuses dangerous archives.

An archive is refused if it contains a member whose path leaves the folder (absolute, `..`, a drive), a link,
an encrypted member, a name that occurs twice, members that overlap in the file, or a member with an excessive
expansion (a few kilobytes of zip can expand to gigabytes of zeros).

The list of members is stored as one dictionary of row numbers and one table of integers: 20 MiB in each
process for 120,000 members. The objects of `zipfile` take 80 MiB, and half a second to build.
"""

import os
import stat
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Int64

from unseen.runtime.errors import UserError
from unseen.runtime.files import regular

MAX_MEMBER = 2**29  # bytes; no image file is that large
MAX_NESTED = 2**35  # bytes of an archive in an archive, which is copied to the disk
# Expansion of a member above a mebibyte. Photographs reach 1.1; only blank bitmaps exceed the limit.
MAX_RATIO = 200
# Folders of desktops and of storage systems (lower case), which contain copies, previews and deleted files.
SYSTEM_FOLDERS = frozenset(
    [
        "__macosx",
        "@eadir",
        "@tmp",
        "@recycle",
        "@recently-snapshot",
        "@synoresource",
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "recycler",
        "system volume information",
        "lost+found",
        "network trash folder",
    ]
)
PIECE = 2**20  # bytes per read
REMEDY = (
    "Pack the images again, as plain files below one folder, "
    "or unpack the archive yourself and name the folder as the source."
)
# The local header before each member: signature, lengths of name and extra field (APPNOTE 4.3.7).
_HEADER = struct.Struct("<4s22x2H")


class Slices:
    """Reads byte ranges of a file, from any number of threads. Each process opens the file at its first
    read."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None

    def __reduce__(self) -> tuple[type["Slices"], tuple[Path]]:
        return (type(self), (self.path,))

    def __call__(self, start: int, size: int) -> bytes:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDONLY)
        return os.pread(self._descriptor, size, start)

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class Packed(ABC):
    """The files of an archive, by name."""

    path: Path

    def names(self) -> list[str]:
        """The names, sorted."""
        return sorted(self._listed())

    def __contains__(self, name: str) -> bool:
        return name in self._listed()

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError if the member is damaged, KeyError if it does not exist."""
        return b"".join(self._pieces(name))

    def copy(self, name: str, sink: BinaryIO) -> None:
        """Copies a file, which may be larger than memory, to `sink`. Raises as `read` does."""
        for piece in self._pieces(name):
            sink.write(piece)

    @abstractmethod
    def _listed(self) -> Mapping[str, Any]:
        """The place of each file."""

    @abstractmethod
    def _pieces(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, PIECE or fewer at a time."""


class Zip(Packed):
    """The files of a zip archive. The list is made at the first use and is pickled with the object.

    Raises UserError if the file is missing, is not a zip archive, or contains a member of the kinds above.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._slices = Slices(self.path)
        self._rows: dict[str, int] | None = None
        # columns: position of the header, stored bytes, bytes, CRC-32, deflated
        self._table: Int64[np.ndarray, "members 5"] = np.empty((0, 5), np.int64)

    def _pieces(self, name: str) -> Iterator[bytes]:
        row = self._listed()[name]
        begin, stored, size, crc, deflated = self._table[row].tolist()
        header = self._slices(begin, _HEADER.size) if begin >= 0 else b""
        if len(header) < _HEADER.size or header[:4] != b"PK\3\4":
            raise ValueError("damaged within the archive: no member starts at its listed offset")
        begin += _HEADER.size + sum(_HEADER.unpack(header)[1:])
        total, checksum = 0, 0
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        try:
            for position in range(begin, begin + stored, PIECE):
                raw = self._slices(position, min(PIECE, begin + stored - position))
                for piece in [raw] if inflater is None else _inflated(inflater, raw, size - total):
                    total += len(piece)
                    checksum = zlib.crc32(piece, checksum)
                    yield piece
        except zlib.error as error:
            raise ValueError(f"damaged within the archive: {error}") from error
        if total != size:
            raise ValueError(f"the archive lists {size:,} bytes but contains {total:,}")
        if checksum != crc:
            raise ValueError("damaged within the archive: Bad CRC-32")

    def _listed(self) -> dict[str, int]:
        if self._rows is None:
            members = self._members()
            self._require_safe(members)
            files = [member for member in members if not member.is_dir()]
            self._table = np.array(list(map(_table_row, files)), np.int64).reshape(-1, 5)
            self._rows = {member.filename: row for row, member in enumerate(files)}
        return self._rows

    def _members(self) -> list[zipfile.ZipInfo]:
        try:
            with zipfile.ZipFile(regular(self.path)) as archive:
                return archive.infolist()
        except FileNotFoundError:
            raise UserError(
                f"{self.path} does not exist.", "Put the archive there, or correct the path of the source."
            ) from None
        # NotImplementedError: a version of the format that zipfile does not read.
        except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.path} is not a readable zip archive: {error}.", "Fetch or pack it again."
            ) from None

    def _require_safe(self, members: list[zipfile.ZipInfo]) -> None:
        names: set[str] = set()
        for member in members:
            danger = _danger(member) or ("occurs twice" if member.filename in names else None)
            if danger:
                raise UserError(f"{self.path}: member {member.filename!r} {danger}.", REMEDY)
            names.add(member.filename)
        stored, size = sum(member.compress_size for member in members), self.path.stat().st_size
        if stored > size:
            raise UserError(
                f"{self.path}: its members overlap: they take {stored:,} bytes, but the file has {size:,}.",
                REMEDY,
            )


class Archive(Zip):
    """A zip archive whose names omit a folder that encloses all files: `photos/a/1.jpg` becomes `a/1.jpg`."""

    def _listed(self) -> dict[str, int]:
        if self._rows is None:
            rows = super()._listed()
            prefix = _enclosing(rows)
            self._rows = {name[len(prefix) :]: row for name, row in rows.items() if name.startswith(prefix)}
        return self._rows


def _table_row(member: zipfile.ZipInfo) -> tuple[int, ...]:
    deflated = member.compress_type == zipfile.ZIP_DEFLATED
    return member.header_offset, member.compress_size, member.file_size, member.CRC, deflated


def _enclosing(names: dict[str, int]) -> str:
    """The prefix of the one folder that contains all class directories or a CSV; empty if there is none."""
    visible = [name for name in names if not is_hidden(name)]
    top_folders = {name.split("/", 1)[0] for name in visible}
    encloses = any(name.count("/") >= 2 or (name.endswith(".csv") and "/" in name) for name in visible)
    return f"{top_folders.pop()}/" if len(top_folders) == 1 and encloses else ""


def is_hidden(name: str) -> bool:
    """Whether a file is hidden or below a folder of `SYSTEM_FOLDERS`: `.DS_Store`, `@eaDir/photo.jpg`."""
    return any(part.startswith(".") or part.lower() in SYSTEM_FOLDERS for part in name.split("/"))


def leaves_its_folder(name: str) -> bool:
    """Whether a path with forward slashes leads out of the folder that it is relative to."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name[1:2] == ":"


def too_large(name: str, size: int) -> str | None:
    """The reason to refuse a member of this size, or None."""
    nested = name.lower().endswith((".zip", ".tgz", ".tar.gz", ".tar"))
    return f"expands to {size / 2**20:,.0f} MiB" if size > (MAX_NESTED if nested else MAX_MEMBER) else None


def _inflated(inflater: "zlib._Decompress", raw: bytes, remaining: int) -> Iterator[bytes]:
    """The expansion of `raw` in pieces. It ends one byte after the `remaining` bytes of the member, if the
    member is larger than its header gives."""
    while raw and remaining >= 0:
        piece = inflater.decompress(raw, min(remaining + 1, PIECE))
        raw = inflater.unconsumed_tail
        remaining -= len(piece)
        yield piece
    if remaining >= 0:
        yield inflater.decompress(b"", remaining + 1)  # the end of a match that the limit on a piece divided


def _danger(member: zipfile.ZipInfo) -> str | None:
    """The reason to refuse a member, or None."""
    mode = member.external_attr >> 16
    if not member.filename:
        return "has no name"
    if leaves_its_folder(member.filename):
        return "leaves the folder"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a device"
    if member.flag_bits & 1:
        return "is encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"is compressed by method {member.compress_type}, not by deflate"
    if excess := too_large(member.filename, member.file_size):
        return excess
    if member.file_size > 2**20 and member.file_size > MAX_RATIO * member.compress_size:
        return f"expands from {member.compress_size:,} to {member.file_size:,} bytes"
    return None
