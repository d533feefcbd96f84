"""Tar archives, compressed by gzip or not. A member of a compressed one cannot be reached without inflating
all that lies before it, and rows are written in another order than that of the archive: so it is inflated
once, from beginning to end, into a scratch file, and members are read as slices of that. A plain tar is read
in place. No member is written under its own name, so none can leave a folder or be a link.

Refused as a whole: members that leave the folder, links, devices, sparse files, a name that occurs twice,
absurd expansion, a file cut short.
"""

import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from pipeline.ingest.files.archive import MAX_RATIO, PIECE, REMEDY, Slices, leaves_its_folder, too_large
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import full_disk_is_an_error
from pipeline.runtime.progress import Progress

ALWAYS = (
    2**26
)  # bytes that any archive may expand to: a small one may well be mostly the zeros that tar fills up with
_GZIP = b"\x1f\x8b"
_BLOCK = 512  # bytes; an archive ends with blocks of zeros


@contextmanager
def scratch_directory(output: Path) -> Iterator[Path]:
    """An empty directory beside `output`, on the disk that has to have room anyway, gone afterwards; what a
    killed process left goes first."""
    output.parent.mkdir(parents=True, exist_ok=True)
    for leftover in output.parent.glob(f".{output.name}.*.scratch"):
        shutil.rmtree(leftover)
    with TemporaryDirectory(prefix=f".{output.name}.", suffix=".scratch", dir=output.parent) as name:
        yield Path(name)


class Tarball:
    """The files of a tar archive by their names in it. `scratch` is an existing directory, which has to stay
    as long as files are read.

    Raises UserError when the file is no tar archive, is cut short, or holds a member of the kinds above.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = Path(path)
        with open(self.path, "rb") as file:
            compressed = file.read(2) == _GZIP
        plain = inflate(self.path, scratch / f"{self.path.name}.tar") if compressed else self.path
        self._slices = Slices(plain)
        self._members = self._list(plain)

    def names(self) -> list[str]:
        """Sorted."""
        return sorted(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises KeyError when there is no such file."""
        start, size = self._members[name]
        return self._slices(start, size)

    def copy(self, name: str, sink: BinaryIO) -> None:
        """Writes a file that may be larger than memory."""
        start, size = self._members[name]
        for position in range(start, start + size, PIECE):
            sink.write(self._slices(position, min(PIECE, start + size - position)))

    def _list(self, plain: Path) -> dict[str, tuple[int, int]]:
        members: dict[str, tuple[int, int]] = {}
        end = 0
        try:
            with tarfile.open(plain, "r:") as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    if found := _danger(member) or ("occurs twice" if name in members else None):
                        raise UserError(f"{self.path}: member {member.name!r} {found}.", REMEDY)
                    end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                    if member.isfile():
                        members[name] = (member.offset_data, member.size)
        except tarfile.TarError as error:
            raise UserError(
                f"{self.path} is not a readable tar archive: {error}.", "Fetch or pack it again."
            ) from None
        if self._slices(end, _BLOCK) != bytes(_BLOCK):  # `tarfile` takes a broken header for the end
            raise UserError(
                f"{self.path} is cut short or damaged: the archive does not end after its member at byte "
                f"{end:,}.",
                "Fetch it again.",
            )
        return members


def inflate(path: Path, target: Path) -> Path:
    """Writes what a gzip file holds to `target`, in a few MiB of memory, and returns `target`.

    Raises UserError when the file is cut short, damaged, expands absurdly, or the disk is full.
    """
    compressed = path.stat().st_size
    allowed = max(MAX_RATIO * compressed, ALWAYS)
    written, inflater = 0, zlib.decompressobj(zlib.MAX_WBITS | 16)
    progress = Progress(f"inflate {path.name}", -(-compressed // PIECE), "MiB")
    with open(path, "rb") as source, full_disk_is_an_error(target), open(target, "wb") as sink, progress:
        while raw := source.read(PIECE):
            progress.advance()
            while raw:
                if inflater.eof:
                    if not raw.startswith(
                        _GZIP
                    ):  # some writers fill the last block up; what follows a whole archive is not part of it
                        return target
                    inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
                try:
                    piece = inflater.decompress(raw, 4 * PIECE)
                except zlib.error as error:
                    raise UserError(
                        f"{path} is damaged at byte {source.tell() - len(raw):,} or after: {error}.",
                        "Fetch it again.",
                    ) from None
                raw = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                written += len(piece)
                if written > allowed:
                    raise UserError(
                        f"{path} expands from {compressed:,} bytes to more than {allowed:,}.", REMEDY
                    )
                sink.write(piece)
        sink.write(inflater.flush())  # a match that the bound on a piece cut in two
    if not inflater.eof:
        raise UserError(
            f"{path} is cut short: it ends after {compressed:,} bytes in the middle of its data.",
            "Fetch it again.",
        )
    return target


def _danger(member: tarfile.TarInfo) -> str | None:
    if leaves_its_folder(member.name):
        return "leaves the folder"
    if not (member.isreg() or member.isdir()):
        return "is a link or a device"
    if member.issparse():
        return "is a sparse file"
    return too_large(member.name, member.size)
