"""Zip archives, read in place: no member is ever written to disk, and a dangerous archive is refused as a
whole.

Refused: members that leave the folder (absolute, `..`, a drive), links, encrypted members, a name that occurs
twice, members that overlap in the file, and members that expand absurdly (a few kilobytes of zip can hold
gigabytes of zeros).

The list of members is kept as one dictionary of row numbers and one table of integers: 20 MiB in each process
for 120,000 members, where the objects of `zipfile` take 80 (and half a second to build).
"""

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import numpy as np
from jaxtyping import Int64

from pipeline.runtime.errors import UserError

MAX_MEMBER = 2**29  # bytes; no image file is that large
MAX_NESTED = 2**35  # bytes of an archive in an archive, which goes through the disk
MAX_RATIO = (
    200  # of a member above a mebibyte; photographs reach 1.1, blank bitmaps are the only images above
)
PIECE = 2**20  # bytes read at once
REMEDY = (
    "Pack the images anew, as plain files below one folder, or unpack the archive yourself and name the "
    "folder."
)
_HEADER = struct.Struct(
    "<4s22x2H"
)  # before each member of a zip: signature, lengths of name and extra field (APPNOTE 4.3.7)


class Slices:
    """Byte ranges of a file, for any number of threads. Opened lazily in each process."""

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


class Zip:
    """The files of a zip archive by their names in it. Listed on the first use; what was listed travels to
    other processes.

    Raises UserError when the file is missing, no zip archive, or holds a member of the kinds above.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._slices = Slices(self.path)
        self._rows: dict[str, int] | None = None
        self._table: Int64[np.ndarray, "members 5"] = np.empty(
            (0, 5), np.int64
        )  # begin of header, stored bytes, bytes, CRC-32, deflated

    def names(self) -> list[str]:
        """Sorted."""
        return sorted(self._listed())

    def __contains__(self, name: str) -> bool:
        return name in self._listed()

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError when the archive is damaged there, KeyError when there is no
        such file."""
        return b"".join(self._pieces(name))

    def copy(self, name: str, sink: BinaryIO) -> None:
        """Writes a file that may be larger than memory. Raises as `read` does."""
        for piece in self._pieces(name):
            sink.write(piece)

    def _pieces(self, name: str) -> Iterator[bytes]:
        row = self._listed()[name]
        begin, stored, size, crc, deflated = self._table[row].tolist()
        header = self._slices(begin, _HEADER.size) if begin >= 0 else b""
        if len(header) < _HEADER.size or header[:4] != b"PK\3\4":
            raise ValueError("damaged within the archive: no member begins where its list says")
        begin += _HEADER.size + sum(_HEADER.unpack(header)[1:])
        total, found = 0, 0
        inflater = zlib.decompressobj(-zlib.MAX_WBITS) if deflated else None
        try:
            for position in range(begin, begin + stored, PIECE):
                raw = self._slices(position, min(PIECE, begin + stored - position))
                for piece in [raw] if inflater is None else _inflated(inflater, raw, size - total):
                    total += len(piece)
                    found = zlib.crc32(piece, found)
                    yield piece
        except zlib.error as error:
            raise ValueError(f"damaged within the archive: {error}") from error
        if total != size:
            raise ValueError(f"the archive announces {size:,} bytes and holds {total:,}")
        if found != crc:
            raise ValueError("damaged within the archive: Bad CRC-32")

    def _listed(self) -> dict[str, int]:
        if self._rows is None:
            try:
                with zipfile.ZipFile(self.path) as archive:
                    members = archive.infolist()
            except FileNotFoundError:
                raise UserError(
                    f"{self.path} does not exist.",
                    "Put the archive there, or correct the path of the source.",
                ) from None
            # NotImplementedError: a version of the format that zipfile does not read.
            except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError) as error:
                raise UserError(
                    f"{self.path} is not a readable zip archive: {error}.", "Fetch or pack it again."
                ) from None
            self._refuse_dangerous(members)
            members = [member for member in members if not member.is_dir()]
            self._table = np.array(
                [
                    (
                        m.header_offset,
                        m.compress_size,
                        m.file_size,
                        m.CRC,
                        m.compress_type == zipfile.ZIP_DEFLATED,
                    )
                    for m in members
                ],
                np.int64,
            ).reshape(-1, 5)
            self._rows = {member.filename: row for row, member in enumerate(members)}
        return self._rows

    def _refuse_dangerous(self, members: list[zipfile.ZipInfo]) -> None:
        seen: set[str] = set()
        for member in members:
            if found := _danger(member) or ("occurs twice" if member.filename in seen else None):
                raise UserError(f"{self.path}: member {member.filename!r} {found}.", REMEDY)
            seen.add(member.filename)
        stored, size = sum(member.compress_size for member in members), self.path.stat().st_size
        if stored > size:
            raise UserError(
                f"{self.path}: its members take {stored:,} bytes, the file has {size:,}: they overlap.",
                REMEDY,
            )


class Archive(Zip):
    """A zip archive without a folder that encloses all its files: `photos/a/1.jpg` is `a/1.jpg`."""

    def _listed(self) -> dict[str, int]:
        if self._rows is None:
            rows = super()._listed()
            prefix = _enclosing(rows)
            self._rows = {name[len(prefix) :]: row for name, row in rows.items() if name.startswith(prefix)}
        return self._rows


def _enclosing(names: dict[str, int]) -> str:
    visible = [name for name in names if not is_hidden(name)]
    tops = {name.split("/", 1)[0] for name in visible}
    wraps = any(name.count("/") >= 2 or (name.endswith(".csv") and "/" in name) for name in visible)
    return f"{tops.pop()}/" if len(tops) == 1 and wraps else ""


def is_hidden(name: str) -> bool:
    """Files that a desktop leaves behind: `.DS_Store`, `._photo.jpg`, `__MACOSX/...`."""
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def leaves_its_folder(name: str) -> bool:
    """Whether a relative path with forward slashes points outside the folder it is relative to."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name[1:2] == ":"


def too_large(name: str, size: int) -> str | None:
    """What is wrong with a member of this size, in words; None when nothing is."""
    nested = name.lower().endswith((".zip", ".tgz", ".tar.gz", ".tar"))
    return f"expands to {size / 2**20:,.0f} MiB" if size > (MAX_NESTED if nested else MAX_MEMBER) else None


def _inflated(inflater: "zlib._Decompress", raw: bytes, left: int) -> Iterator[bytes]:
    """What `raw` expands to in pieces, at most one byte more than `left`: a member that lies about its size
    ends there."""
    while raw and left >= 0:
        piece = inflater.decompress(raw, min(left + 1, PIECE))
        raw = inflater.unconsumed_tail
        left -= len(piece)
        yield piece
    if left >= 0:
        yield inflater.decompress(b"", left + 1)  # a match that the bound on a piece cut in two


def _danger(member: zipfile.ZipInfo) -> str | None:
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
    if found := too_large(member.filename, member.file_size):
        return found
    if member.file_size > 2**20 and member.file_size > MAX_RATIO * member.compress_size:
        return f"expands from {member.compress_size:,} to {member.file_size:,} bytes"
    return None
