"""A published data set by the names of its files, packed or unpacked: what an archive holds is named as if it
had been unpacked where it lies.

data/raw/cub/CUB_200_2011.tgz            -> CUB_200_2011/images.txt,
CUB_200_2011/images/001.Black_footed_Albatross/... data/raw/inshop/Img/img.zip              ->
Img/img/WOMEN/... inshop.zip, which holds Img/img.zip      -> the same
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from pipeline.ingest.files.archive import PIECE, Zip, is_hidden
from pipeline.ingest.files.tarball import Tarball
from pipeline.ingest.releases import Published, PublishedFile, expectation, key_of, not_there
from pipeline.ingest.sources.folder import Directory
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import full_disk_is_an_error

_SUFFIXES = (".zip", ".tgz", ".tar.gz", ".tar")
_SHOWN = 3
Packed = Zip | Tarball


class Tree:
    """The files of a published set. `path` is a folder or an archive; `scratch` an existing directory, which
    has to stay as long as files are read.

    An archive of the set is opened unless what it holds lies beside it already. Other archives are left
    alone. Raises UserError when `path` does not exist or an archive is unreadable or dangerous. Pickles,
    without its list of names.
    """

    def __init__(self, path: Path, published: Published, scratch: Path) -> None:
        self.path, self._published, self._scratch = Path(path), published, scratch
        if not self.path.exists():
            raise not_there(key_of(published), self.path, "does not exist")
        self._packed: list[tuple[str, Packed]] = []  # each below the folder in which it lies
        self._folder = None if self.path.is_file() else Directory(self.path)
        self._names: set[str] = set()
        if self._folder is None:
            self._add("", open_archive(self.path, scratch, published.files))
        else:
            self._add("", self._folder)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_names": set()}

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError or OSError when it cannot be read, KeyError when an archive
        should hold it and does not."""
        for prefix, packed in self._packed:
            if name.startswith(prefix) and name[len(prefix) :] in packed:
                return packed.read(name[len(prefix) :])
        if self._folder is None:
            raise KeyError(name)
        return self._folder.read(name)

    def below(self, marker: str) -> "Branch | None":
        """The part of the set below the folder that holds the file (or, with a final slash, the folder)
        `marker`; None when there is none."""
        if marker.endswith("/"):
            found = {
                n[: n.index(f"/{marker}") + 1] if not n.startswith(marker) else ""
                for n in self._names
                if f"/{marker}" in f"/{n}"
            }
        else:
            found = {n.removesuffix(marker) for n in self._names if f"/{n}".endswith(f"/{marker}")}
        shallow = sorted(
            (root for root in found if not is_hidden(root)), key=lambda root: (root.count("/"), root)
        )
        return Branch(self, shallow[0]) if shallow else None

    def names(self) -> set[str]:
        """All of them, but for what a desktop leaves behind."""
        return {name for name in self._names if not is_hidden(name)}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def _add(self, prefix: str, files: Directory | Packed) -> None:
        added = [prefix + name for name in files.names()]
        if not isinstance(files, Directory):
            self._packed.append((prefix, files))
        self._names.update(added)
        by_stem = {file.stem: file for file in self._published.files if file.unpacked}
        for name in added:
            file = by_stem.get(_stem(name))
            if file is None or is_hidden(name):
                continue
            folder = name[: name.rfind("/") + 1]
            if any(other.startswith(f"{folder}{file.unpacked}") for other in added):
                continue
            self._add(
                folder,
                open_archive(
                    self._on_disk(prefix, name[len(prefix) :], files), self._scratch, self._published.files
                ),
            )

    def _on_disk(self, prefix: str, name: str, files: Directory | Packed) -> Path:
        """The archive as a file: itself, or a copy when it lies in an archive."""
        if isinstance(files, Directory):
            return self.path / prefix / name
        copy = self._scratch / f"{len(self._packed)}-{PurePosixPath(name).name}"
        try:
            with full_disk_is_an_error(copy), open(copy, "wb", buffering=PIECE) as sink:
                files.copy(name, sink)
        except ValueError as error:
            raise UserError(
                f"{self.path}: {prefix}{name} cannot be read: {error}.", "Fetch the archive again."
            ) from error
        return copy


class Branch:
    """What lies below one folder of a tree, by names relative to it."""

    def __init__(self, tree: Tree, root: str) -> None:
        self.tree, self.root = tree, root

    def read(self, name: str) -> bytes:
        return self.tree.read(self.root + name)

    def text(self, name: str) -> str:
        """A list file. Raises UserError when it is no UTF-8 text."""
        try:
            return self.read(name).decode("utf-8-sig")
        except (ValueError, OSError) as error:
            raise UserError(
                f"{self.tree.path}: {self.root}{name} is no text: {error}.", "Fetch the archive again."
            ) from None

    def __contains__(self, name: str) -> bool:
        return self.root + name in self.tree

    def require(self, names: Iterable[str], listed_in: str) -> None:
        """Raises UserError when files that stand in a list are not there."""
        missing = [name for name in names if self.root + name not in self.tree]
        if missing:
            shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
            raise UserError(
                f"{self.tree.path}: {len(missing):,} of the files that stand in {listed_in} are not there: "
                f"{shown}.",
                "The archive was unpacked or fetched in part: unpack or fetch it again, or name the archive "
                "itself.",
            )


def open_archive(path: Path, scratch: Path, files: Iterable[PublishedFile] = ()) -> Packed:
    """The archive by what it begins with, whatever its name. Raises UserError, with what is known of the
    published file of this name."""
    try:
        with open(path, "rb") as file:
            begin = file.read(262)
        if begin.startswith(b"PK"):
            archive = Zip(path)
            archive.names()  # raises here what it raises
            return archive
        if begin.startswith(b"\x1f\x8b") or begin[257:262] == b"ustar":
            return Tarball(path, scratch)
        page = " A web page was saved in its place." if begin.lstrip()[:1] == b"<" else ""
        raise UserError(
            f"{path} is neither a zip nor a tar archive: it begins with {begin[:16]!r}.{page}",
            "Fetch it again.",
        )
    except UserError as error:
        found = (
            f" This one has {path.stat().st_size:,} bytes."
            if (facts := expectation(files, path.name))
            else ""
        )
        raise UserError(error.what, error.remedy + facts + found) from error


def _stem(name: str) -> str:
    """`img` of `Img/img.zip`; empty when the name is not that of an archive."""
    base = PurePosixPath(name).name
    return next((base.removesuffix(suffix) for suffix in _SUFFIXES if base.endswith(suffix)), "")
