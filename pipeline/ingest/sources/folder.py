"""Images of a user: a folder or a zip archive, with one directory per class or a CSV that names each image's
class.

path,label[,split,is_query,is_gallery]          the CSV; paths relative to the source, like its own
birds/red/1.jpg,red kite,train,,
birds/red/9.jpg,milan,test,yes,no
"""

import csv
import difflib
import io
import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pipeline.config.dataset import FolderSource
from pipeline.data.shards import SPLITS
from pipeline.ingest.collection import Collection, Picture
from pipeline.ingest.files.archive import Archive, is_hidden, leaves_its_folder
from pipeline.ingest.splits import held_out
from pipeline.runtime.errors import UserError

SUFFIXES = frozenset(
    [
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".bmp",
        ".gif",
        ".webp",
        ".tif",
        ".tiff",
        ".ppm",
        ".pgm",
        ".pbm",
    ]
)
# Images in formats that are not read (data.decode.FORMATS). They are reported, because a user expects them.
_CODECS = (".heic", ".heif", ".hif", ".avif", ".jxl", ".jp2", ".j2k", ".jpf", ".jpx", ".apng")
_DRAWINGS = (".psd", ".tga", ".pcx", ".exr", ".svg", ".eps", ".xcf")
_CAMERAS = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".raf", ".rw2", ".pef", ".srw")
UNREAD_SUFFIXES = frozenset((*_CODECS, *_DRAWINGS, *_CAMERAS))
CONVERT = "Convert them to JPEG or PNG."
_SHOWN = 5
REQUIRED, OPTIONAL = ("path", "label"), ("split", "is_query", "is_gallery")
_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


class Directory:
    """The files below a folder, by name relative to it."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UserError(
                f"{self.path} does not exist.", "Put the images there, or correct the path of the source."
            )

    def names(self) -> list[str]:
        """Sorted. Links are followed, a folder is entered once: a link to an enclosing folder does no harm.

        Raises UserError if a folder cannot be listed, unless it is hidden or `lost+found` of a file system.
        """
        found, entered = [], set()
        unreadable: dict[str, str] = {}  # the reason, by folder

        def note(error: OSError) -> None:
            folder = Path(error.filename).relative_to(self.path)
            if folder == Path() or not (is_hidden(folder.as_posix()) or folder.name == "lost+found"):
                unreadable[str(Path(error.filename))] = error.strerror or type(error).__name__

        for here, folders, files in os.walk(self.path, followlinks=True, onerror=note):
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in entered:
                folders.clear()
                continue
            entered.add((status.st_dev, status.st_ino))
            folders.sort()
            found += [(Path(here) / name).relative_to(self.path).as_posix() for name in files]
        if unreadable:
            reasons = [f"{folder} ({reason})" for folder, reason in sorted(unreadable.items())]
            count = f"{len(unreadable):,} folder{'s' * (len(unreadable) > 1)}"
            raise UserError(
                f"{count} cannot be read: {enumerated(reasons)}.",
                "Allow reading and entering them (chmod u+rx), or move them to another place.",
            )
        return sorted(found)

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()


class _Row(NamedTuple):
    source: str
    label: str
    split: str | None
    is_query: bool
    is_gallery: bool


def collection(source: FolderSource, scratch: Path | None = None) -> Collection:
    """Lists the images and gives every class its split: the CSV's, or `test_share` of the classes by `order`
    and `seed`.

    The class of an image in a directory is that directory's whole path, so `a/x` and `b/x` are two classes.
    Files that are no images are left alone and counted in the manifest. Without a CSV, images in formats that
    are not read are listed there too, as `unread_images`. Raises UserError with the file, or the line of the
    CSV, that does not fit.
    """
    root = Path(source.path)
    files = (
        Directory(root)
        if root.is_dir() or (not root.exists() and root.suffix.lower() != ".zip")
        else Archive(root)
    )
    names = files.names()
    for name in names:
        if not _is_text(name):
            raise UserError(f"{root}: the file name {name!r} is not valid UTF-8.", "Rename it.")
    rows = _from_csv(files, names, source.labels) if source.labels else _from_directories(root, names)
    unread = [] if source.labels else unread_images(names)
    if unread and not rows:
        raise UserError(f"{root} holds no image that can be read. {unread_sentence(unread)}", CONVERT)
    if any(row.split for row in rows):
        split_of = _given_splits(rows, f"{root}/{source.labels}")
    else:
        test = held_out((row.label for row in rows), source.test_share, source.order, source.seed)
        split_of = {row.label: "test" if row.label in test else "train" for row in rows}
    listed = {row.source for row in rows}
    others = Counter(
        PurePosixPath(name).suffix.lower()
        for name in names
        if name not in listed and not is_hidden(name) and name != source.labels
    )
    return Collection(
        where=str(root),
        pictures=[
            Picture(row.source, row.label, split_of[row.label], row.is_query, row.is_gallery) for row in rows
        ],
        read=files.read,
        facts={"other_files": dict(others)} | ({"unread_images": unread} if unread else {}),
    )


def unread_images(names: list[str]) -> list[str]:
    """Those of `names` that are images in a format that is not read, by their suffix, without hidden
    files."""
    visible = (name for name in names if not is_hidden(name))
    return [name for name in visible if PurePosixPath(name).suffix.lower() in UNREAD_SUFFIXES]


def unread_sentence(unread: list[str]) -> str:
    """How many images have a format that is not read, and the first of their names."""
    count = f"{len(unread):,} image{'s have' if len(unread) > 1 else ' has'}"
    return f"{count} a format that is not read: {enumerated(unread)}."


def enumerated(names: list[str]) -> str:
    """The first of `names`, and the number of the others."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _from_directories(root: Path, names: list[str]) -> list[_Row]:
    images = [
        name for name in names if PurePosixPath(name).suffix.lower() in SUFFIXES and not is_hidden(name)
    ]
    for name in images:
        if "/" not in name:
            raise UserError(
                f"{root / name} lies in no class directory.",
                "Move it into the directory of its class, or name the classes in a CSV (`labels` of the "
                "source).",
            )
    return [_Row(name, name.rpartition("/")[0], None, True, True) for name in images]


def _from_csv(files: Directory | Archive, names: list[str], labels: str) -> list[_Row]:
    table = f"{files.path}/{labels}"
    known = set(names)
    if labels not in known:
        tables = ", ".join(name for name in names if name.endswith(".csv")) or "none"
        raise UserError(
            f"{table} does not exist; CSV files there: {tables}.", "Correct `labels` of the source."
        )
    try:
        text = files.read(labels).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{table} is not UTF-8: {error.reason} at byte {error.start}.", "Save it as UTF-8."
        ) from None
    except (ValueError, OSError) as error:
        raise UserError(f"{table} cannot be read: {error}.", "Pack or copy it again.") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    try:
        columns = list(reader.fieldnames or [])
        lines = [(reader.line_num, values) for values in reader]
    except csv.Error as error:  # such as a value that is too long, because a quote does not end
        raise UserError(
            f"{table}:{reader.line_num}: {error}.", "Put a second quote after each quoted value."
        ) from None
    for separator, name in ((";", ";"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            raise UserError(
                f"{table}: the columns are separated by {name}.",
                "Save it with commas between them: path,label.",
            )
    for column in REQUIRED:
        if column not in columns:
            raise UserError(
                f"{table} has no column `{column}`; it has: {', '.join(columns) or 'none'}.",
                "The first line names the columns.",
            )
    for column in set(columns) - set(REQUIRED) - set(OPTIONAL):
        if close := difflib.get_close_matches(column.lower().strip(), OPTIONAL, n=1, cutoff=0.75):
            raise UserError(
                f"{table}: the column `{column}` is not known.",
                f"Did you mean {close[0]}? Other columns are ignored if named otherwise.",
            )
    rows: dict[str, _Row] = {}
    for line, values in lines:
        where = f"{table}:{line}"
        row = _parse(values, columns, where)
        if row.source in rows:
            raise UserError(f"{where}: {row.source} is listed twice.", "Keep one of the lines.")
        if leaves_its_folder(row.source) or row.source not in known:
            raise UserError(
                f"{where}: there is no file {row.source!r} in {files.path}.",
                "Correct the path; it is relative to the source.",
            )
        rows[row.source] = row
    return list(rows.values())


def _parse(values: dict[str, str], columns: list[str], where: str) -> _Row:
    if None in values:
        raise UserError(
            f"{where}: more values than the {len(columns)} columns.",
            "Put values that hold a comma into quotes.",
        )
    label = values["label"].strip()
    if not label:
        raise UserError(f"{where}: no label.", "Name the class of every image.")
    split = values["split"].strip() if "split" in columns else None
    if split is not None and split not in SPLITS:
        taken = (
            "Call it train: the classes for validation are taken from train. "
            if split.lower().startswith("val")
            else ""
        )
        raise UserError(
            f"{where}: split {split!r}.",
            f"{taken}Write one of: {', '.join(SPLITS)}. Leave the column out to have the classes divided.",
        )
    flags = []
    for column in ("is_query", "is_gallery"):
        value = values[column].strip().lower() if column in columns else "yes"
        if value == "" and split == "train":  # a train row asks and answers nothing
            value = "yes"
        if value not in _FLAGS:
            raise UserError(f"{where}: {column} {value!r}.", f"Write one of: {', '.join(_FLAGS)}.")
        flags.append(_FLAGS[value])
    return _Row(PurePosixPath(values["path"].strip()).as_posix(), label, split, flags[0], flags[1])


def _given_splits(rows: list[_Row], table: str) -> dict[str, str]:
    splits: dict[str, _Row] = {}
    for row in rows:
        first = splits.setdefault(row.label, row)
        if first.split != row.split:
            raise UserError(
                f"{table}: class {row.label!r} is in both splits: {first.source} is {first.split}, "
                f"{row.source} is {row.split}.",
                "Test classes must be unseen in training: give every class one split.",
            )
    return {label: str(row.split) for label, row in splits.items()}


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
