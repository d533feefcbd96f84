"""Labels that a person wrote: a CSV with a header, or a text file with one label a line. UTF-8.

A byte order mark and blanks around a value are not part of it. Text is compared in Unicode's form NFC: the
same name can be written with one character (é) or with two (e and an accent), and some systems change it.
"""

import csv
import difflib
import io
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from unseen.runtime.errors import UserError


class Line(NamedTuple):
    """The values of a line of a CSV by column, and its place for messages."""

    place: str  # file:number
    values: Mapping[str, str]


def decoded(content: bytes, where: str) -> str:
    """The text of a file. Raises UserError for other encodings than UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where} is not UTF-8: {error.reason} at byte {error.start}.", "Save it as UTF-8."
        ) from None


def normal(text: str) -> str:
    """A value without blanks around it, in form NFC."""
    return unicodedata.normalize("NFC", text.strip())


def lines_of(content: bytes, where: str) -> list[str]:
    """The labels of a text file, one a line."""
    return [normal(line) for line in decoded(content, where).splitlines()]


def csv_lines(
    content: bytes, where: str, required: tuple[str, ...], optional: tuple[str, ...] = ()
) -> list[Line]:
    """The lines of a CSV, which have a value in each of the columns `required`. A column that is in neither
    tuple is ignored, unless its name resembles an optional one.

    Raises UserError with the line for a table that is damaged, lacks a column or a value, has one twice, or
    separates columns by another character.
    """
    reader = csv.DictReader(io.StringIO(decoded(content, where), newline=""), restval="")
    try:
        columns = list(reader.fieldnames or [])
        lines = [(f"{where}:{reader.line_num}", values) for values in reader]
    except csv.Error as error:  # such as a value that is too long, because a quote does not end
        raise UserError(
            f"{where}:{reader.line_num}: {error}.", "Put a second quote after each quoted value."
        ) from None
    _require_columns(columns, where, required, optional)
    known = [column for column in (*required, *optional) if column in columns]
    result = []
    for place, values in lines:
        if None in values:
            raise UserError(
                f"{place}: more values than the {len(columns)} columns.",
                "Put values that contain a comma in quotes.",
            )
        if any("\0" in values[column] for column in known):
            raise UserError(f"{place}: a value contains the character NUL.", "Save the file as UTF-8 text.")
        result.append(Line(place, {column: normal(values[column]) for column in known}))
        for column in required:
            if not result[-1].values[column]:
                raise UserError(f"{place}: no {column}.", "Complete or remove the line.")
    return result


def _require_columns(
    columns: list[str], where: str, required: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(columns) == 1 and separator in columns[0]:
            raise UserError(
                f"{where}: the columns are separated by {name}.",
                f"Save it with commas between them: {','.join(required)}.",
            )
    for column in required:
        if column not in columns:
            raise UserError(
                f"{where} has no column `{column}`; its columns: {', '.join(columns) or 'none'}.",
                "The first line must name the columns.",
            )
    for column in (*required, *optional):
        if columns.count(column) > 1:
            raise UserError(f"{where} has {columns.count(column)} columns `{column}`.", "Keep one of them.")
    for column in set(columns) - set(required) - set(optional):
        if similar := difflib.get_close_matches(column.lower().strip(), optional, n=1, cutoff=0.75):
            raise UserError(
                f"{where}: unknown column `{column}`.",
                f"Did you mean {similar[0]}? Give the column another name if it must be ignored.",
            )


def by_file(lines: list[Line], names: Collection[str]) -> Iterator[tuple[Line, str | None]]:
    """Each line with the name of the file that its `path` means; None if there is no such file.

    Raises UserError for a file that is listed twice.
    """
    existing, normalised = set(names), {normal(name): name for name in names}
    listed: set[str] = set()
    for line in lines:
        path = PurePosixPath(line.values["path"]).as_posix()
        name = path if path in existing else normalised.get(path)
        if path in listed or name in listed:
            raise UserError(f"{line.place}: {path} is listed twice.", "Delete one of the lines.")
        listed.add(name or path)
        yield line, name
