"""The label of each picture of a folder: the product that it shows.

none      no labels
folders   the folder of the picture below the folder of the photos; none for a picture that is in no folder
CSV       a file with the columns `path` (below the folder of the photos) and `label`; others are ignored
"""

from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from unseen.data.ingest.sources.folder import enumerated
from unseen.data.labels import alike, by_file, csv_lines, normal, read, require_one_folder
from unseen.frozen.pictures import Listed, listed
from unseen.runtime.errors import UserError
from unseen.runtime.names import say

NONE, FOLDERS = "none", "folders"


def labelled(
    photos: Path, source: str, check: Callable[[list[str]], object] = len
) -> tuple[Listed, list[str]]:
    """The pictures of a folder that have a label, and their labels. `source`: as in `labels_of`.

    check: receives the labels before a picture is read, and raises UserError for those that do not suffice.
    Raises UserError if a picture is damaged or none has a label, and as `labels_of` does.
    """
    of_names: list[str | None] = []

    def read_labels(names: list[str]) -> None:
        of_names.extend(labels_of(source, names, photos))
        present = [label for label in of_names if label is not None]
        if not present:
            raise UserError(
                f"No photo of {photos} has a label.",
                "Put the photos of each class into its folder, or name a CSV with --labels.",
            )
        check(present)

    pictures = listed(photos, check=read_labels)
    if pictures.damaged:
        name, reason = next(iter(pictures.damaged.items()))
        raise UserError(f"{photos / name} cannot be read: {reason}.", "Repair or remove it.")
    columns = pictures.paths, pictures.sha256, pictures.stamps
    rows = zip(*columns, of_names, strict=True)
    chosen = [(path, digest, stamp, label) for path, digest, stamp, label in rows if label is not None]
    paths, digests, stamps, labels = (list(column) for column in zip(*chosen, strict=True))
    return Listed(paths, digests, stamps, {}), labels


def labels_of(source: str, paths: Sequence[str], photos: Path | None = None) -> list[str | None]:
    """The label of each path; None for a picture without one. `source`: none, folders, or the path of a CSV.

    The standard error names lines of a CSV without a picture, and labels that look equal. Raises UserError
    for a class with two folders, and for a CSV that is missing, has no label of these pictures, or is not a
    table of labels (pipeline/data/labels.py). `photos`: the folder of the paths.
    """
    if source == NONE:
        return [None] * len(paths)
    if source == FOLDERS:
        folders = [PurePosixPath(path).parent.as_posix() for path in paths]
        require_one_folder(folders, str(photos or "The photos"))
        labels = [None if folder == "." else normal(folder) for folder in folders]
    else:
        label_of = _from_csv(Path(source), paths, photos)
        labels = [label_of.get(path) for path in paths]
    if sentence := alike(label for label in labels if label is not None):
        say(f"catalog: warning: {sentence}")
    return labels


def _from_csv(table: Path, pictures: Sequence[str], photos: Path | None) -> dict[str, str]:
    """The label of each picture that the table lists."""
    content = read(table, "Correct --labels: none, folders, or a CSV with the columns path,label.")
    labels, unknown = {}, []
    for line, name in by_file(csv_lines(content, str(table), ("path", "label")), pictures, photos):
        if name is None:
            unknown.append(f"{line.values['path']} ({line.place})")
        else:
            labels[name] = line.values["label"]
    if not labels:
        first = f"the first picture is {pictures[0]}" if pictures else "there is no picture"
        raise UserError(
            f"{table} has a label of no picture; its first path is {unknown[0]}, {first}.",
            "Write the paths relative to the folder of the photos.",
        )
    if unknown:
        say(
            f"catalog: {table} has labels of {len(unknown):,} pictures that do not exist: "
            f"{enumerated(unknown)}. {len(pictures) - len(labels):,} pictures have no label."
        )
    return labels
