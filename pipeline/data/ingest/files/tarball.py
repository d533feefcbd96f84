"""Reads tar archives, compressed by gzip or not.

A member of a compressed archive can be reached only by inflating all data before it, and rows are written in
another order than that of the archive. A compressed archive is therefore inflated once into a scratch file,
and members are read as slices of that file. An uncompressed archive is read in place. No member is written
under its own name, so no member can leave the folder or create a link.

An archive is refused if it is truncated, or contains a member whose path leaves the folder, a link, a device,
a sparse file, a name that occurs twice, or an excessive expansion.
"""

import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from unseen.data.ingest.files.archive import (
    MAX_RATIO,
    PIECE,
    REMEDY,
    Packed,
    Slices,
    leaves_its_folder,
    too_large,
)
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error
from unseen.runtime.flock import held
from unseen.runtime.progress import Progress

# Bytes that every archive may expand to: a small archive may consist mostly of the zeros that tar pads with.
ALLOWED_EXPANSION = 2**26
_GZIP = b"\x1f\x8b"
_BLOCK = 512  # bytes; an archive ends with blocks of zeros


@contextmanager
def scratch_directory(output: Path) -> Iterator[Path]:
    """An empty directory beside `output`, on the same disk, that is removed at the end. Directories that
    killed processes left are removed first."""
    output.parent.mkdir(parents=True, exist_ok=True)
    for leftover in output.parent.glob(f".{output.name}.*.scratch"):
        shutil.rmtree(leftover, ignore_errors=True)  # another stage may be removing it, too
    with (
        TemporaryDirectory(prefix=f".{output.name}.", suffix=".scratch", dir=output.parent) as name,
        held(Path(name)),
    ):
        yield Path(name)


class Tarball(Packed):
    """The files of a tar archive. `scratch` is an existing directory; it must exist as long as files
    are read.

    Raises UserError if the file is not a tar archive, is truncated, or contains a member of the kinds above.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self.path = Path(path)
        with open(self.path, "rb") as file:
            compressed = file.read(2) == _GZIP
        plain = inflate(self.path, scratch / f"{self.path.name}.tar") if compressed else self.path
        self._slices = Slices(plain)
        self._members = self._list(plain)

    def _listed(self) -> dict[str, tuple[int, int]]:
        return self._members

    def _pieces(self, name: str) -> Iterator[bytes]:
        start, size = self._members[name]
        for position in range(start, start + size, PIECE):
            yield self._slices(position, min(PIECE, start + size - position))

    def _list(self, plain: Path) -> dict[str, tuple[int, int]]:
        members: dict[str, tuple[int, int]] = {}
        end = 0
        try:
            with tarfile.open(plain, "r:") as archive:
                for member in archive:
                    name = member.name.removeprefix("./")
                    danger = _danger(member) or ("occurs twice" if name in members else None)
                    if danger:
                        raise UserError(f"{self.path}: member {member.name!r} {danger}.", REMEDY)
                    end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                    if member.isfile():
                        members[name] = (member.offset_data, member.size)
        except tarfile.TarError as error:
            raise UserError(
                f"{self.path} is not a readable tar archive: {error}.", "Fetch or pack it again."
            ) from None
        if self._slices(end, _BLOCK) != bytes(_BLOCK):  # `tarfile` ends without an error at a broken header
            raise UserError(
                f"{self.path} is truncated or damaged: "
                f"no end of the archive follows its last member, at byte {end:,}.",
                "Fetch it again.",
            )
        return members


def inflate(path: Path, target: Path) -> Path:
    """Writes the content of a gzip file to `target`, in a few MiB of memory, and returns `target`.

    Raises UserError if the file is truncated, damaged or expands excessively, or if the disk is full.
    """
    compressed = path.stat().st_size
    limit = max(MAX_RATIO * compressed, ALLOWED_EXPANSION)
    written, inflater = 0, zlib.decompressobj(zlib.MAX_WBITS | 16)
    progress = Progress(f"inflate {path.name}", -(-compressed // PIECE), "MiB")
    with open(path, "rb") as source, unwritable_is_an_error(target), open(target, "wb") as sink, progress:
        while raw := source.read(PIECE):
            progress.advance()
            while raw:
                if inflater.eof:
                    if not raw.startswith(_GZIP):  # padding of the last block, which some writers add
                        return target
                    inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
                try:
                    piece = inflater.decompress(raw, 4 * PIECE)
                except zlib.error as error:
                    position = source.tell() - len(raw)
                    raise UserError(
                        f"{path} is damaged at byte {position:,} or after: {error}.", "Fetch it again."
                    ) from None
                raw = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                written += len(piece)
                if written > limit:
                    raise UserError(
                        f"{path} expands from {compressed:,} bytes to more than {limit:,}.", REMEDY
                    )
                sink.write(piece)
        sink.write(inflater.flush())  # the end of a match that the limit on a piece divided
    if not inflater.eof:
        raise UserError(
            f"{path} is truncated: it ends after {compressed:,} bytes within its data.", "Fetch it again."
        )
    return target


def _danger(member: tarfile.TarInfo) -> str | None:
    """The reason to refuse a member, or None."""
    if leaves_its_folder(member.name):
        return "leaves the folder"
    if not (member.isreg() or member.isdir()):
        return "is a link or a device"
    if member.issparse():
        return "is a sparse file"
    return too_large(member.name, member.size)
