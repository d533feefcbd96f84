"""Names and labels that a person wrote: a CSV with a header, or a text file with one label a line.

Encodings: UTF-8, UTF-16 with a byte order mark, and others that the first line declares: `# coding: cp1252`.
Columns are separated by commas, semicolons, tabs or |, as the header shows or a first line `sep=;` declares;
capitals and blanks in their names do not count. Blanks around a value are not part of it. Text is compared
in Unicode's form NFC: the same name can be written with one character (é) or with two (e and an accent), and
some systems change it.
"""

import csv
import difflib
import io
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from unseen.runtime.errors import UserError
from unseen.runtime.files import regular

_CODING = re.compile(rb'(?:\xef\xbb\xbf)?"?# ?coding[:=] ?([\w.-]+)[^\r\n]*\r?\n?')
_SEPARATOR = re.compile(r'"?sep=([,;\t|])[^\r\n]*\r?\n?', re.IGNORECASE)
_SEPARATORS = (",", ";", "\t", "|")
# Folders that hold a part or another kind of the photos of a class, and are no class.
_SPLITS = "train training trainval val valid validation dev test testing eval query gallery"
_KINDS = "image images img imgs photo photos jpegimages mask masks segmentation segmentations trimaps"
_PARTS = frozenset((*_SPLITS.split(), *_KINDS.split()))
_NAMED = 3  # groups of labels in a message


class Line(NamedTuple):
    """The values of a line of a CSV by column, and its place for messages."""

    place: str  # file:number
    values: Mapping[str, str]


def read(path: Path, remedy: str) -> bytes:
    """The bytes of a file that a person names. Raises UserError with `remedy`."""
    try:
        return regular(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error}.", remedy) from error


class Text(NamedTuple):
    """The text of a file below the line that declares its encoding."""

    text: str
    first: int  # number of its first line


def decoded(content: bytes, where: str) -> Text:
    """The text of a file. Raises UserError with the line if it is not in the declared encoding or, without a
    declaration, in none of those above."""
    encoding, first = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", 1
    if declared := _CODING.match(content):
        content, encoding, first = content[declared.end() :], declared[1].decode(), 2
    try:
        return Text(content.decode(encoding), first)
    except LookupError:
        raise UserError(f"{where}:1: unknown encoding {encoding}.", "Write e.g. # coding: cp1252") from None
    except UnicodeDecodeError as error:
        name = {"utf-8-sig": "UTF-8", "utf-16": "UTF-16"}.get(encoding, encoding)
        line = content.count(b"\n", 0, error.start) + first
        raise UserError(
            f"{where}:{line} is not {name}: {error.reason} at byte {error.start}.",
            "Save it as UTF-8, or declare its encoding in the first line, e.g. # coding: cp1252",
        ) from None


def normal(text: str) -> str:
    """A value without blanks around it, in form NFC."""
    return unicodedata.normalize("NFC", text.strip())


def lines_of(content: bytes, where: str) -> list[tuple[int, str]]:
    """The lines of a text file with their numbers, without empty ones at its end. Only line feeds and
    carriage returns end a line."""
    text, first = decoded(content, where)
    lines = io.StringIO(text.rstrip(), newline=None).read()
    return list(enumerate(lines.split("\n"), first)) if lines else []


def labels_in(content: bytes, where: str) -> list[str]:
    """The labels of a text file, one a line. Raises UserError with the line for an empty one."""
    labels = []
    for number, line in lines_of(content, where):
        labels.append(normal(line))
        if not labels[-1]:
            raise UserError(f"{where}:{number}: no label.", "Write the class of every image.")
    return labels


def csv_lines(
    content: bytes, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[Line]:
    """The lines of a CSV, which have a value in each of the columns `required`. A column that is in neither
    tuple is ignored, unless its name resembles an optional one. Lines without any value are ignored.

    Raises UserError with the line for a table that is damaged, has no line, or lacks a column or a value, or
    has one twice.
    """
    rows = _rows(decoded(content, where), where, required)
    _, header = next(rows, ("", []))
    columns = _names(header)
    _require_columns(columns, where, required, optional)
    known = {column: columns.index(column) for column in (*required, *optional) if column in columns}
    result = []
    for place, values in rows:
        if len(values) > len(columns) and any(map(str.strip, values[len(columns) :])):
            raise UserError(
                f"{place}: more values than the {len(columns)} columns.",
                "Put values that contain the separator in quotes.",
            )
        if not any(map(str.strip, values)):
            continue
        values += [""] * (len(columns) - len(values))
        if any("\0" in values[index] for index in known.values()):
            raise UserError(f"{place}: a value contains the character NUL.", "Save the file as UTF-8 text.")
        result.append(Line(place, {column: normal(values[index]) for column, index in known.items()}))
        for column in required:
            if not result[-1].values[column]:
                raise UserError(f"{place}: no {column}.", "Complete or remove the line.")
    if not result:
        raise UserError(f"{where} has no line below the names of the columns.", "Write one for each picture.")
    return result


def _names(header: list[str]) -> list[str]:
    """The names of the columns: the same for `Path`, ` path` and `path`."""
    return [normal(column).lower() for column in header]


def _rows(content: Text, where: str, required: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
    """The place and the values of each row. The separator is the declared one, or the first that gives the
    columns `required`."""
    text, first = content
    separators: Sequence[str] = _SEPARATORS
    if declared := _SEPARATOR.match(text):
        text, first, separators = text[declared.end() :], first + 1, (declared[1],)
    complete = [separator for separator in separators if {*required} <= {*_header(text, separator)}]
    reader = _parsed(text, (complete or separators)[0])
    while True:
        place = f"{where}:{first + reader.line_num}"
        try:
            yield place, next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # such as a quote that does not end
            raise UserError(f"{place}: {error}.", "Put a second quote after each quoted value.") from None


def _header(text: str, separator: str) -> list[str]:
    try:
        return _names(next(_parsed(text, separator), []))
    except csv.Error:  # the reading of the rows reports it
        return []


def _parsed(text: str, separator: str) -> Any:
    """The reader of csv."""
    lines = io.StringIO(text, newline="")
    return csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)


def _require_columns(
    columns: list[str], where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    for column in required:
        if column not in columns:
            raise UserError(
                f"{where} has no column `{column}`; its columns: {', '.join(columns) or 'none'}.",
                f"The first line must name the columns: {','.join(required)}.",
            )
    for column in (*required, *optional):
        if columns.count(column) > 1:
            raise UserError(f"{where} has {columns.count(column)} columns `{column}`.", "Keep one of them.")
    for column in set(columns) - set(required) - set(optional):
        if similar := difflib.get_close_matches(column, optional, n=1, cutoff=0.75):
            raise UserError(
                f"{where}: unknown column `{column}`.",
                f"Did you mean {similar[0]}? Give the column another name if it must be ignored.",
            )


def by_file(
    lines: list[Line], names: Collection[str], root: Path | None = None
) -> Iterator[tuple[Line, str | None]]:
    """Each line with the name of the file that its `path` means; None if there is no such file.

    A path may also be written with backslashes, in other capitals if that means one file, or, with the folder
    `root` of the files, as an absolute path. Raises UserError for a file that is listed twice.
    """
    existing, normalised = set(names), {normal(name): name for name in names}
    folded: dict[str, list[str]] = {}
    for existing_name in existing:
        folded.setdefault(normal(existing_name).casefold(), []).append(existing_name)
    roots = [] if root is None else [f"{root.absolute().as_posix()}/", f"{root.resolve().as_posix()}/"]
    listed: set[str] = set()
    name: str | None
    for line in lines:
        path = PurePosixPath(line.values["path"]).as_posix()
        slashed = PurePosixPath(path.replace("\\", "/")).as_posix()
        below = slashed.removeprefix(next(filter(slashed.startswith, roots), ""))
        name = path if path in existing else normalised.get(path) or normalised.get(below)
        if name is None and len(similar := folded.get(below.casefold(), [])) == 1:
            (name,) = similar
        if path in listed or name in listed:
            raise UserError(f"{line.place}: {path} is listed twice.", "Delete one of the lines.")
        listed.add(name or path)
        yield line, name


def alike(labels: Iterable[str]) -> str | None:
    """A sentence on labels that look equal: they differ only in capitals, in blanks, or in characters that
    are invisible or have an equivalent form. None if there are none."""
    groups: dict[str, list[str]] = {}
    for label in sorted(set(labels)):
        text = unicodedata.normalize("NFKC", label).casefold()
        visible = "".join(character for character in text if unicodedata.category(character) != "Cf")
        groups.setdefault(" ".join(visible.split()), []).append(label)
    equal = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not equal:
        return None
    more = f" and {len(equal) - _NAMED:,} more" if len(equal) > _NAMED else ""
    return f"labels look equal, but are different classes: {', '.join(equal[:_NAMED])}{more}"


def require_one_folder(classes: Iterable[str], where: str) -> None:
    """Raises UserError if a class has two folders, such as train/c0 and test/c0, or c0 and c0/mask: they
    would be two classes."""
    folder_of: dict[str, str] = {}
    for folder in sorted(set(classes)):
        name = "/".join(part for part in folder.split("/") if part.casefold() not in _PARTS)
        if name and folder_of.setdefault(name, folder) != folder:
            raise UserError(
                f"{where}: {folder_of[name]} and {folder} are two folders of one class, but each folder is a "
                "class.",
                "Name the class of each image in a CSV, or name a folder that contains each class once.",
            )
