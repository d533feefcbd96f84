"""The label of each picture of a catalog: the product that it shows.

none      no labels
folders   the folder of the picture below the folder of the photos; none for a picture that is in no folder
CSV       a file with the columns `path` (below the folder of the photos) and `label`; others are ignored
"""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from unseen.runtime.errors import UserError
from unseen.runtime.files import regular

NONE, FOLDERS = "none", "folders"


def labels_of(source: str, paths: Sequence[str]) -> list[str | None]:
    """The label of each path; None for a picture without one. `source`: none, folders, or the path of a CSV.

    Raises UserError for a CSV that is missing or damaged, lacks a column, or gives a picture two labels.
    """
    if source == NONE:
        return [None] * len(paths)
    if source == FOLDERS:
        folders = (PurePosixPath(path).parent.as_posix() for path in paths)
        return [None if folder == "." else folder for folder in folders]
    by_path = _from_csv(Path(source))
    unknown = len(by_path.keys() - set(paths))
    if unknown:
        sys.stderr.write(f"catalog: {source} has labels of {unknown:,} pictures that do not exist\n")
    return [by_path.get(path) for path in paths]


def _from_csv(path: Path) -> dict[str, str]:
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in ("path", "label") if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(
                    f"{path} has no column {' and no column '.join(missing)}.",
                    "Write a first line with the names: path,label.",
                )
            for name in ("path", "label"):
                if (count := list(reader.fieldnames or ()).count(name)) > 1:
                    raise UserError(f"{path} has {count} columns {name}.", "Keep one of them.")
            labels: dict[str, str] = {}
            for row in reader:
                picture, label = row["path"] or "", row["label"] or ""
                if not picture or not label:
                    raise UserError(
                        f"{path}:{reader.line_num}: path or label is empty.", "Complete or remove the line."
                    )
                if "\0" in picture + label:
                    raise UserError(
                        f"{path}:{reader.line_num}: a value contains the character NUL.",
                        "Save the file as UTF-8 text.",
                    )
                name = PurePosixPath(picture).as_posix()
                if labels.setdefault(name, label) != label:
                    raise UserError(
                        f"{path}:{reader.line_num}: {name} has the labels {labels[name]} and {label}.",
                        "Write each picture once.",
                    )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path} cannot be read: {error}.", "Correct --labels: none, folders, or a CSV in UTF-8."
        ) from error
    return labels
