"""Images of a user: a folder or a zip archive, with one directory per class, or with a CSV that gives the
class of each image.

    path,label[,split,is_query,is_gallery]
    birds/red/1.jpg,red kite,train,,
    birds/red/9.jpg,milan,test,yes,no

The paths in the CSV, and the path of the CSV itself, are relative to the source.
"""

import os
import stat
from collections import Counter
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from unseen.data.heif import readable
from unseen.data.ingest.collection import Collection, Picture
from unseen.data.ingest.files.archive import Archive, is_hidden, leaves_its_folder
from unseen.data.labels import Line, alike, by_file, csv_lines, normal, require_one_folder
from unseen.data.shard_schema import SPLITS
from unseen.data.splits import held_out
from unseen.runtime.errors import UserError
from unseen.runtime.names import printable

if TYPE_CHECKING:
    from unseen.data.ingest.settings import FolderSource, OwnSource

_JPEG = (".jpg", ".jpeg", ".jpe", ".jfif")
_LOSSLESS = (".png", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")
HEIC = (".heic", ".heif", ".hif")  # converted by data.heif
SUFFIXES = frozenset((*_JPEG, *_LOSSLESS, *HEIC, ".webp", ".avif"))
# Suffixes of image formats that are not read. Such files are reported, because the user may
# expect them in the set.
_CODECS = (".jxl", ".jp2", ".j2k", ".jpf", ".jpx", ".apng")
_DRAWINGS = (".psd", ".tga", ".pcx", ".exr", ".svg", ".eps", ".xcf")
_CAMERAS = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".pef", ".srw")
UNREAD_SUFFIXES = frozenset((*_CODECS, *_DRAWINGS, *_CAMERAS))
CONVERT = "Convert them to JPEG or PNG."
_LISTED = 5  # names in a message
REQUIRED, OPTIONAL = ("path", "label"), ("split", "is_query", "is_gallery")
_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Directory:
    """The files below a folder, by name relative to the folder.

    irregular: names that `names` omits, because a read of them may never end: named pipes, sockets and
    devices, and links to these.
    repeated: `B = A` for each folder B that `names` omits, because it is folder A under another name, by a
    link.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.irregular: list[str] = []
        self.repeated: list[str] = []
        if not self.path.is_dir():
            problem = "is a file, expected a folder" if self.path.exists() else "does not exist"
            raise UserError(
                f"{self.path} {problem}.", "Put the images there, or correct the path of the source."
            )

    def names(self) -> list[str]:
        """The names, sorted. Links are followed. Each folder is entered once, also if a link leads to an
        enclosing folder; `repeated` lists its other names, unless they are hidden.

        Omits files that are not regular files and lists them in `irregular`. Raises UserError if a folder
        cannot be listed, unless it is hidden.
        """
        names: list[str] = []
        irregular: list[str] = []
        repeated: list[str] = []
        entered: dict[tuple[int, int], str] = {}  # the name of a folder, by device and inode
        unreadable: dict[str, str] = {}  # the reason, by folder

        def add_unreadable(error: OSError) -> None:
            folder = Path(error.filename).relative_to(self.path)
            if folder == Path() or not is_hidden(folder.as_posix()):
                unreadable[str(Path(error.filename))] = error.strerror or type(error).__name__

        for folder, folders, files in os.walk(self.path, followlinks=True, onerror=add_unreadable):
            status, own_name = os.stat(folder), Path(folder).relative_to(self.path).as_posix()
            name_of_folder = entered.setdefault((status.st_dev, status.st_ino), own_name)
            if name_of_folder != own_name:
                folders.clear()
                if not is_hidden(own_name):
                    repeated.append(f"{own_name} = {name_of_folder}")
                continue
            # hidden ones last: a folder that a hidden link names, too, is entered under its visible name
            folders.sort(key=lambda name: (is_hidden(name), name))
            for name in files:
                path = os.path.join(folder, name)
                names_of_kind = names if _is_regular(path) else irregular
                names_of_kind.append(Path(path).relative_to(self.path).as_posix())
        if unreadable:
            reasons = [f"{path} ({reason})" for path, reason in sorted(unreadable.items())]
            count = f"{len(unreadable):,} folder{'s' * (len(unreadable) > 1)}"
            raise UserError(
                f"{count} cannot be read: {enumerated(reasons)}.",
                "Allow reading and entering them (chmod u+rx), or move them to another place.",
            )
        self.irregular, self.repeated = sorted(irregular), sorted(repeated)
        return sorted(names)

    def read(self, name: str) -> bytes:
        """The bytes of a file. Raises ValueError for a named pipe or device, and OSError."""
        if not _is_regular(self.path / name):
            raise ValueError("a named pipe, socket or device, not a file")
        return (self.path / name).read_bytes()


class Row(NamedTuple):
    """One image with the values of its table."""

    source: str
    label: str
    split: str | None
    is_query: bool
    is_gallery: bool


def collection(source: "FolderSource", scratch: Path | None = None) -> Collection:
    """Lists the images with the split of their class: that of the CSV, or `test_share` of the classes are
    test, chosen by `order` and `seed`.

    The class of an image in a directory is the whole path of the directory, so `a/x` and `b/x` are two
    classes. The manifest lists what is not read: images in formats that are not read (`unread_images`) or,
    with a CSV, the number and first names of the images that it does not list (`unlisted_images`); the
    numbers of other files by suffix (`other_files`) and their first names (`other_file_names`); named pipes
    and devices (`irregular_files`); folders that a link names a second time (`repeated_folders`). Raises
    UserError with the invalid file, or line of the CSV.
    """
    root = Path(source.path)
    is_folder = root.is_dir() or (not root.exists() and root.suffix.lower() != ".zip")
    files = Directory(root) if is_folder else Archive(root)
    names = files.names()
    for name in names:
        if not is_text(name):
            raise UserError(f"{root}: the file name {name!r} is not valid UTF-8.", "Rename it.")
    rows = _from_csv(files, names, source.labels) if source.labels else _from_directories(root, names)
    unread = [] if source.labels else unread_images(names)
    if unread and not rows:
        raise UserError(f"{root} contains no image that can be read. {unread_sentence(unread)}", CONVERT)
    pictures = divided(rows, source, f"{root}/{source.labels}")
    known = {row.source for row in rows} | {source.labels, *unread}
    facts = unread_files([name for name in names if name not in known and not is_hidden(name)])
    if unread:
        facts["unread_images"] = unread
    if folders := system_folders(names):
        facts["system_folders"] = folders
    if sentence := alike(row.label for row in rows):
        facts["similar_labels"] = sentence
    if isinstance(files, Directory):
        if files.irregular:
            facts["irregular_files"] = [printable(name) for name in files.irregular]
        if files.repeated:
            facts["repeated_folders"] = [printable(names) for names in files.repeated]
    return Collection(str(root), pictures, partial(_read, files), facts)


def divided(rows: list[Row], source: "OwnSource", table: str) -> list[Picture]:
    """The pictures with the split of their class: that of the rows, or `test_share` of the classes are test,
    chosen by `order` and `seed`. Raises UserError, with the name of the table, for a class in both splits."""
    if any(row.split for row in rows):
        split_of = _given_splits(rows, table)
    else:
        test = held_out((row.label for row in rows), source.test_share, source.order, source.seed)
        split_of = {row.label: "test" if row.label in test else "train" for row in rows}
    return [Picture(row.source, row.label, split_of[row.label], row.is_query, row.is_gallery) for row in rows]


def unread_files(names: list[str]) -> dict[str, Any]:
    """The entries of the manifest for files that are neither read nor listed elsewhere: images, which a CSV
    does not list, and others."""
    images = [name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES | UNREAD_SUFFIXES]
    others = sorted(set(names) - set(images))
    facts: dict[str, Any] = {
        "other_files": dict(Counter(PurePosixPath(name).suffix.lower() for name in others))
    }
    if others:
        facts["other_file_names"] = others[:_LISTED]
    if images:
        facts["unlisted_images"] = {"count": len(images), "first": images[:_LISTED]}
    return facts


def _read(files: Directory | Archive, name: str) -> bytes:
    """The bytes of a picture, HEIC as PPM. Raises ValueError for a damaged HEIC, and OSError."""
    return readable(files.read(name))


def unread_images(names: list[str]) -> list[str]:
    """The names with the suffix of an image format that is not read, without hidden files."""
    visible = (name for name in names if not is_hidden(name))
    return [name for name in visible if PurePosixPath(name).suffix.lower() in UNREAD_SUFFIXES]


def system_folders(names: list[str]) -> list[str]:
    """The folders with pictures that are left out, because they are hidden or of a desktop or a storage
    system."""
    folders = set()
    for name in names:
        hidden = is_hidden(name.rpartition("/")[0]) and PurePosixPath(name).suffix.lower() in SUFFIXES
        if hidden:
            parts = name.split("/")
            end = next(index for index, part in enumerate(parts, 1) if is_hidden(part))
            folders.add("/".join(parts[:end]))
    return sorted(folders)


def system_sentence(folders: list[str]) -> str:
    """A sentence with the folders of `system_folders`."""
    return f"left out the pictures of folders that are hidden or of a system: {enumerated(folders)}."


def unread_sentence(unread: list[str]) -> str:
    """A sentence with the number of images in formats that are not read, and the first of their names."""
    count = f"{len(unread):,} image{'s have' if len(unread) > 1 else ' has'}"
    return f"{count} a format that is not read: {enumerated(unread)}."


def irregular_sentence(irregular: list[str]) -> str:
    """A sentence with the number of named pipes and devices among the pictures, and the first names."""
    count = f"{len(irregular):,} entr{'ies are' if len(irregular) > 1 else 'y is'}"
    return f"{count} a named pipe, socket or device, and not read: {enumerated(irregular)}."


def repeated_sentence(repeated: list[str]) -> str:
    """A sentence with the number of folders that a link names a second time, and the first names."""
    count = f"{len(repeated):,} folder{'s are' if len(repeated) > 1 else ' is'}"
    return (
        f"{count} another folder under a second name, by a link, and not read again: {enumerated(repeated)}."
    )


def unlisted_sentence(count: int, first: list[str]) -> str:
    """A sentence with the number of images that a CSV does not list, and the first names."""
    are = "images are" if count > 1 else "image is"
    return f"{count:,} {are} not in the CSV, and not read: {enumerated(first, count)}."


def other_sentence(counts: dict[str, int], first: list[str]) -> str:
    """A sentence with the numbers of files by a suffix that is not that of an image, and the first names."""
    total = sum(counts.values())
    kinds = ", ".join(f"{count:,} {suffix or 'without suffix'}" for suffix, count in sorted(counts.items()))
    are = "files are" if total > 1 else "file is"
    return f"{total:,} {are} not read, by the suffix ({kinds}): {enumerated(first, total)}."


def enumerated(names: list[str], count: int | None = None) -> str:
    """A list of the first `names`, with control characters escaped, and the number of the others. `count`: of
    all names, if these are only the first."""
    hidden = (len(names) if count is None else count) - min(len(names), _LISTED)
    return ", ".join(map(printable, names[:_LISTED])) + (f" and {hidden:,} more" if hidden else "")


def _from_directories(root: Path, names: list[str]) -> list[Row]:
    images = [
        name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES and not is_hidden(name)
    ]
    for name in images:
        if "/" not in name:
            raise UserError(
                f"{root / name} is not in a class directory.",
                "Move it to the directory of its class, or list the classes in a CSV (source.labels).",
            )
    folders = [name.rpartition("/")[0] for name in images]
    require_one_folder(folders, str(root))
    rows = zip(images, folders, strict=True)
    return [Row(name, normal(folder), None, True, True) for name, folder in rows]


def _from_csv(files: Directory | Archive, names: list[str], labels: str) -> list[Row]:
    table = f"{files.path}/{labels}"
    if labels not in names:
        tables = ", ".join(name for name in names if name.endswith(".csv")) or "none"
        raise UserError(
            f"{table} does not exist; CSV files there: {tables}.", "Correct `labels` of the source."
        )
    try:
        content = files.read(labels)
    except (ValueError, OSError) as error:
        raise UserError(f"{table} cannot be read: {error}.", "Pack or copy it again.") from None
    rows = []
    for line, name in by_file(csv_lines(content, table, REQUIRED, OPTIONAL), names, files.path):
        if name is None or leaves_its_folder(name):
            raise UserError(
                f"{line.place}: {files.path} contains no file {line.values['path']!r}.",
                "Correct the path; it is relative to the source.",
            )
        rows.append(row_of(line, name))
    return rows


def row_of(line: Line, name: str) -> Row:
    """The values of one line of a table. name: of its image."""
    values = line.values
    split = values.get("split")
    if split is not None and split not in SPLITS:
        hint = ""
        if split.lower().startswith("val"):
            hint = "Write train: validation classes are chosen from the train classes. "
        raise UserError(
            f"{line.place}: unknown split {split!r}.",
            f"{hint}Write one of: {', '.join(SPLITS)}. "
            "Without this column, the classes are divided automatically.",
        )
    flags = []
    for column in ("is_query", "is_gallery"):
        value = values.get(column, "yes").lower()
        if value == "" and split == "train":  # train rows are neither queries nor gallery in an evaluation
            value = "yes"
        if value not in _FLAGS:
            raise UserError(
                f"{line.place}: unknown {column} {value!r}.", f"Write one of: {', '.join(_FLAGS)}."
            )
        flags.append(_FLAGS[value])
    return Row(name, values["label"], split, flags[0], flags[1])


def _given_splits(rows: list[Row], table: str) -> dict[str, str]:
    """The split of each class in the CSV."""
    first_of: dict[str, Row] = {}  # by class
    for row in rows:
        first = first_of.setdefault(row.label, row)
        if first.split != row.split:
            raise UserError(
                f"{table}: class {row.label!r} is in both splits: {first.source} is {first.split}, "
                f"{row.source} is {row.split}.",
                "Test classes must be unseen in training: give every class one split.",
            )
    return {label: str(row.split) for label, row in first_of.items()}


def _is_regular(path: str | Path) -> bool:
    """Whether a path is a regular file, or cannot be examined: reading it then reports the reason."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


def is_text(name: str) -> bool:
    """Whether a file name is valid UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
