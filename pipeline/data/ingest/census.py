"""Counts the images and classes of a data set and compares them with the published counts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from unseen.data.ingest.collection import Picture
from unseen.runtime.errors import UserError


class Count(NamedTuple):
    """The size of one part of a data set. The parts are train and test, or train, query and gallery."""

    images: int
    classes: int


def part(picture: Picture) -> str:
    """`query` or `gallery` if a test picture is only one of the two, else the split, `train` or `test`."""
    if picture.split == "train" or picture.is_query == picture.is_gallery:
        return picture.split
    return "query" if picture.is_query else "gallery"


def census(pictures: Iterable[Picture]) -> dict[str, Count]:
    """The numbers of images and classes in each part."""
    images: dict[str, int] = defaultdict(int)
    classes: dict[str, set[str]] = defaultdict(set)
    for picture in pictures:
        images[part(picture)] += 1
        classes[part(picture)].add(picture.class_name)
    return {name: Count(images[name], len(classes[name])) for name in images}


def require_counts(
    pictures: Iterable[Picture], expected: Mapping[str, Count], location: str, title: str, cause: str
) -> None:
    """Checks that the pictures are the published set.

    Raises UserError if the counts differ from `expected`, an image is listed twice, or a class is in both
    splits. The error names the `location` of the files, both counts, the `title` of the set and the likely
    `cause`.
    """
    pictures = list(pictures)
    split_of: dict[str, str] = {}
    sources: set[str] = set()
    for picture in pictures:
        if picture.source in sources:
            raise UserError(f"{location} is not {title}: {picture.source} is listed twice.", cause)
        sources.add(picture.source)
        if split_of.setdefault(picture.class_name, picture.split) != picture.split:
            raise UserError(
                f"{location} is not {title}: class {picture.class_name} is in both splits.", cause
            )
    counts = census(pictures)
    if counts != dict(expected):
        ordered = {name: counts[name] for name in (*expected, *counts) if name in counts}
        raise UserError(
            f"{location} is not {title}: found {_counts_text(ordered)}; expected {_counts_text(expected)}.",
            cause,
        )


def _counts_text(counts: Mapping[str, Count]) -> str:
    if not counts:
        return "no images"
    parts = (f"{count.images:,} {name} images of {count.classes:,} classes" for name, count in counts.items())
    return f"{', '.join(parts)} ({sum(count.images for count in counts.values()):,} images)"
