"""How many images and classes a published set has, and whether the files found are that set."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pipeline.ingest.collection import Picture
from pipeline.runtime.errors import UserError


class Count(NamedTuple):
    """Of one part of a set: train and test, or train, query and gallery."""

    images: int
    classes: int


def part(picture: Picture) -> str:
    """`train`, `test`, or `query` and `gallery` where a test picture is only one of the two."""
    if picture.split == "train" or picture.is_query == picture.is_gallery:
        return picture.split
    return "query" if picture.is_query else "gallery"


def census(pictures: Iterable[Picture]) -> dict[str, Count]:
    """Images and classes of each part."""
    images: dict[str, int] = defaultdict(int)
    classes: dict[str, set[str]] = defaultdict(set)
    for picture in pictures:
        images[part(picture)] += 1
        classes[part(picture)].add(picture.class_name)
    return {name: Count(images[name], len(classes[name])) for name in images}


def require_counts(
    pictures: Iterable[Picture], expected: Mapping[str, Count], where: str, title: str, cause: str
) -> None:
    """Raises UserError with what was found, what `title` has, and the likely `cause`, when they differ. No
    image may be listed twice, no class be in both splits.
    """
    pictures = list(pictures)
    split_of: dict[str, str] = {}
    sources: set[str] = set()
    for picture in pictures:
        if picture.source in sources:
            raise UserError(f"{where} is not {title}: {picture.source} is listed twice.", cause)
        sources.add(picture.source)
        if split_of.setdefault(picture.class_name, picture.split) != picture.split:
            raise UserError(f"{where} is not {title}: class {picture.class_name} is in both splits.", cause)
    found = census(pictures)
    if found != dict(expected):
        found = {
            name: found[name] for name in (*expected, *found) if name in found
        }  # in the order of what is expected
        raise UserError(f"{where} is not {title}: found {_words(found)}; it has {_words(expected)}.", cause)


def _words(counts: Mapping[str, Count]) -> str:
    parts = (f"{count.images:,} {name} images of {count.classes:,} classes" for name, count in counts.items())
    return (
        f"{', '.join(parts)} ({sum(count.images for count in counts.values()):,} images)"
        if counts
        else "nothing"
    )
