"""The files of a published data set by name, packed or unpacked. A file in an archive has the name that it
would have if the archive were unpacked in place.

    data/raw/cub/CUB_200_2011.tgz         CUB_200_2011/images.txt, CUB_200_2011/images/001.Black_...
    data/raw/inshop/Img/img.zip           Img/img/WOMEN/...
    inshop.zip, with Img/img.zip in it    Img/img/WOMEN/...
"""

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from unseen.data.ingest.files.archive import PIECE, Packed, Zip, is_hidden
from unseen.data.ingest.files.tarball import Tarball
from unseen.data.ingest.releases import (
    ARCHIVES,
    Published,
    PublishedFile,
    archive_stem,
    missing_data_error,
    published_details,
    registry_key,
)
from unseen.data.ingest.sources.folder import Directory
from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error

_LISTED = 3  # missing files that an error lists


class Tree:
    """The files of a published set. `path` is a folder or an archive. `scratch` is an existing directory; it
    must exist as long as files are read.

    An archive of the set is opened unless its content exists beside it. Other archives are ignored. Raises
    UserError if `path` does not exist or an archive is unreadable or dangerous. The pickled object omits the
    list of names.
    """

    def __init__(self, path: Path, published: Published, scratch: Path) -> None:
        self.path, self._published, self._scratch = Path(path), published, scratch
        if not self.path.exists():
            raise missing_data_error(registry_key(published), self.path, "does not exist")
        self._packed: list[tuple[str, Packed]] = []  # archives, each with the folder that contains it
        self._folder = None if self.path.is_file() else Directory(self.path)
        self._names: set[str] = set()
        if self._folder is None:
            self._add("", open_archive(self.path, scratch, published.files))
        else:
            self._add("", self._folder)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_names": set()}

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError or OSError if it cannot be read, KeyError if `path` is an
        archive without this file."""
        for prefix, packed in self._packed:
            if name.startswith(prefix) and name[len(prefix) :] in packed:
                return packed.read(name[len(prefix) :])
        if self._folder is None:
            raise KeyError(name)
        return self._folder.read(name)

    def below(self, marker: str) -> "Branch | None":
        """The part of the set below the folder that contains the file (or, with a final slash, the folder)
        `marker`; the folder with the fewest parents if there are several, None if there is none."""
        if marker.endswith("/"):
            matches = (f"/{name}".partition(f"/{marker}") for name in self._names)
            roots = {f"{before}/"[1:] for before, separator, _ in matches if separator}
        else:
            roots = {name.removesuffix(marker) for name in self._names if f"/{name}".endswith(f"/{marker}")}
        visible = [root for root in roots if not is_hidden(root)]
        return Branch(self, min(visible, key=lambda root: (root.count("/"), root))) if visible else None

    def names(self) -> set[str]:
        """All names without hidden files."""
        return {name for name in self._names if not is_hidden(name)}

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def _add(self, prefix: str, files: Directory | Packed) -> None:
        added = [prefix + name for name in files.names()]
        if not isinstance(files, Directory):
            self._packed.append((prefix, files))
        self._names.update(added)
        by_stem = {file.stem: file for file in self._published.files if file.unpacked}
        for name in filter(lambda name: name.endswith(ARCHIVES), added):
            file = by_stem.get(archive_stem(PurePosixPath(name).name))
            if file is None or is_hidden(name):
                continue
            folder = name[: name.rfind("/") + 1]
            if any(other.startswith(f"{folder}{file.unpacked}") for other in added):
                continue
            path = self._on_disk(prefix, name[len(prefix) :], files)
            self._add(folder, open_archive(path, self._scratch, self._published.files))

    def _on_disk(self, prefix: str, name: str, files: Directory | Packed) -> Path:
        """The path of the archive, or of a copy in the scratch directory if it is within another archive."""
        if isinstance(files, Directory):
            return self.path / prefix / name
        copy = self._scratch / f"{len(self._packed)}-{PurePosixPath(name).name}"
        try:
            with unwritable_is_an_error(copy), open(copy, "wb", buffering=PIECE) as sink:
                files.copy(name, sink)
        except ValueError as error:
            raise UserError(
                f"{self.path}: {prefix}{name} cannot be read: {error}.", "Fetch the archive again."
            ) from error
        return copy


class Branch:
    """The files below one folder of a tree, by names relative to the folder."""

    def __init__(self, tree: Tree, root: str) -> None:
        self.tree, self.root = tree, root

    def read(self, name: str) -> bytes:
        return self.tree.read(self.root + name)

    def text(self, name: str) -> str:
        """The text of a file. Raises UserError if it is not UTF-8."""
        try:
            return self.read(name).decode("utf-8-sig")
        except (ValueError, OSError) as error:
            raise UserError(
                f"{self.tree.path}: {self.root}{name} is not a text file: {error}.",
                "Fetch the archive again.",
            ) from None

    def __contains__(self, name: str) -> bool:
        return self.root + name in self.tree

    def require(self, names: Iterable[str], listed_in: str) -> None:
        """Raises UserError if files of a list are missing."""
        missing = [name for name in names if self.root + name not in self.tree]
        if missing:
            first = ", ".join(missing[:_LISTED]) + (", ..." if len(missing) > _LISTED else "")
            raise UserError(
                f"{self.tree.path}: {len(missing):,} of the files listed in {listed_in} are missing: "
                f"{first}.",
                "The archive was not unpacked or fetched completely: unpack or fetch it again, "
                "or name the archive as the source.",
            )


class Folders:
    """Reads files by the branch of the first folder of their names. The folders may be in different
    archives."""

    def __init__(self, branches: Mapping[str, Branch]) -> None:
        self.branches = branches

    def __call__(self, name: str) -> bytes:
        return self.branches[name.partition("/")[0]].read(name)


def open_archive(path: Path, scratch: Path, files: Iterable[PublishedFile] = ()) -> Packed:
    """Opens an archive. The format is read from its first bytes, not from its name. A UserError includes the
    published size and hash of the file of this name."""
    try:
        with open(path, "rb") as file:
            first_bytes = file.read(262)
        if first_bytes.startswith(b"PK"):
            archive = Zip(path)
            archive.names()  # raises UserError here instead of at the first read
            return archive
        if first_bytes.startswith(b"\x1f\x8b") or first_bytes[257:262] == b"ustar":
            return Tarball(path, scratch)
        page = " It appears to be a web page." if first_bytes.lstrip()[:1] == b"<" else ""
        raise UserError(
            f"{path} is neither a zip nor a tar archive: it begins with {first_bytes[:16]!r}.{page}",
            "Fetch it again.",
        )
    except UserError as error:
        details = published_details(files, path.name)
        if details:
            details += f" The file has {path.stat().st_size:,} bytes."
        raise UserError(error.what, error.remedy + details) from error
