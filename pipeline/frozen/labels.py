"""The label of each picture of a folder: the product that it shows.

none      no labels
folders   the folder of the picture below the folder of the photos; none for a picture that is in no folder
CSV       a file with the columns `path` (below the folder of the photos) and `label`; others are ignored
"""

import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from unseen.data.labels import by_file, csv_lines
from unseen.frozen.pictures import Listed, listed
from unseen.runtime.errors import UserError
from unseen.runtime.files import regular

NONE, FOLDERS = "none", "folders"


def labelled(photos: Path, source: str) -> tuple[Listed, list[str]]:
    """The pictures of a folder that have a label, and their labels. `source`: as in `labels_of`.

    Raises UserError if a picture is damaged or none has a label, and as `labels_of` does.
    """
    pictures = listed(photos)
    if pictures.damaged:
        name, reason = next(iter(pictures.damaged.items()))
        raise UserError(f"{photos / name} cannot be read: {reason}.", "Repair or remove it.")
    columns = pictures.paths, pictures.sha256, pictures.stamps
    rows = zip(*columns, labels_of(source, pictures.paths), strict=True)
    chosen = [(path, digest, stamp, label) for path, digest, stamp, label in rows if label is not None]
    if not chosen:
        raise UserError(
            f"No photo of {photos} has a label.",
            "Put the photos of each class into its folder, or name a CSV with --labels.",
        )
    paths, digests, stamps, labels = (list(column) for column in zip(*chosen, strict=True))
    return Listed(paths, digests, stamps, {}), labels


def labels_of(source: str, paths: Sequence[str]) -> list[str | None]:
    """The label of each path; None for a picture without one. `source`: none, folders, or the path of a CSV.

    Raises UserError for a CSV that is missing, has no label of these pictures, or is not a table of labels
    (pipeline/data/labels.py).
    """
    if source == NONE:
        return [None] * len(paths)
    if source == FOLDERS:
        folders = (PurePosixPath(path).parent.as_posix() for path in paths)
        return [None if folder == "." else folder for folder in folders]
    label_of, unknown = _from_csv(Path(source), paths)
    if unknown and not label_of:
        raise UserError(
            f"{source} has a label of no picture; its first path is {unknown[0]}.",
            "Write the paths relative to the folder of the photos.",
        )
    if unknown:
        sys.stderr.write(f"catalog: {source} has labels of {len(unknown):,} pictures that do not exist\n")
    return [label_of.get(path) for path in paths]


def _from_csv(path: Path, pictures: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The label of each picture, and the paths of pictures that do not exist."""
    try:
        content = regular(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error}.", "Correct --labels: none, folders, or a CSV in UTF-8."
        ) from error
    labels, unknown = {}, []
    for line, name in by_file(csv_lines(content, str(path), ("path", "label")), pictures):
        if name is None:
            unknown.append(line.values["path"])
        else:
            labels[name] = line.values["label"]
    return labels, unknown
