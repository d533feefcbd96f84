"""What a source hands to ingest: the list of its pictures, a way to read one, tables that refer to them. Also
what a list must satisfy to be used."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import UInt8

from pipeline.data.shards import SPLITS
from pipeline.runtime.errors import UserError

Box = tuple[float, float, float, float]
Content = bytes | UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]
RowOf = Callable[[str], int]  # the row id of a picture, by its source
Extra = Callable[[RowOf], pa.Table]


@dataclass(frozen=True, slots=True)
class Picture:
    """One image before it is read. `source` names it within its set, with forward slashes, and is unique
    there."""

    source: str
    class_name: str
    split: str
    is_query: bool = True
    is_gallery: bool = True
    group: str | None = None  # what lies above or below the class: a super-class, an alphabet, a 3D model
    box: Box | None = (
        # x0, y0, x1, y1 of the part that is the query, in pixels of the file as it is stored, before any
        # orientation
        None
    )


@dataclass(frozen=True)
class Collection:
    """The pictures of a set. `where` names it in messages.

    `read(source)` gives the encoded bytes of a picture, or the pixels themselves where a set has no image
    files (stored as PNG); it is sent to worker processes, so it pickles. `extras[name]` makes the table that
    lies beside the shards as `name`.parquet: ground truth that classes cannot say, in row ids. `by_class`
    False: what matches what stands in such a table alone, so labels are not judged.
    """

    where: str
    pictures: list[Picture]
    read: Callable[[str], Content]
    facts: dict[str, Any] = field(default_factory=dict)  # laid into the manifest
    extras: dict[str, Extra] = field(default_factory=dict)
    by_class: bool = True

    def in_order(self) -> list[Picture]:
        """Row order: train before test, then by class, then by source. The order of listing (of files on a
        disk) is forgotten here."""
        return sorted(self.pictures, key=lambda p: (SPLITS.index(p.split), p.class_name, p.source))


def require_usable(pictures: Iterable[Picture], where: str) -> dict[str, int]:
    """Refuses a set on which retrieval of unseen classes means nothing; returns how many classes of each
    split have a single image.

    Raises UserError for: no image, one class, fewer than two classes in a split, train classes of one image
    each, no query with a match. A single-image class among others is fine: training leaves it out, in the
    test gallery it is one more wrong answer.
    """
    images: dict[str, Counter[str]] = {split: Counter() for split in SPLITS}
    queries: Counter[str] = Counter()
    gallery: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for picture in pictures:
        images[picture.split][picture.class_name] += 1
        if picture.split == "test":
            queries[picture.class_name] += picture.is_query
            gallery[picture.class_name] += picture.is_gallery
            both[picture.class_name] += picture.is_query and picture.is_gallery
    classes = sum(map(len, images.values()))
    if classes == 0:
        raise UserError(
            f"{where} holds no image.",
            "Put one directory of images per class there, or correct the path of the source.",
        )
    if classes == 1:
        (name,) = (name for counter in images.values() for name in counter)
        raise UserError(
            f"{where} holds one class, {name}.",
            "Retrieval of unseen classes needs at least two classes to train on and two to test on.",
        )
    for split in SPLITS:
        if len(images[split]) < 2:
            raise UserError(
                f"{where}: of {classes} classes, {len(images[split])} fall to the {split} split; it needs "
                "at least two.",
                "Add classes, or change the source's test_share or the split column of its CSV.",
            )
    if max(images["train"].values()) < 2:
        raise UserError(
            f"{where}: every train class has one image only.",
            "A loss needs pairs of the same class: give classes two images or more.",
        )
    if not any(
        n and gallery[name] and not n == gallery[name] == both[name] == 1 for name, n in queries.items()
    ):
        one_each = max(images["test"].values()) < 2
        found = (
            "every test class has one image only"
            if one_each
            else "no test query has another image of its class in the gallery"
        )
        raise UserError(
            f"{where}: {found}.",
            "Recall counts matches: give test classes two images or more, or correct is_query and "
            "is_gallery.",
        )
    return {split: sum(count == 1 for count in images[split].values()) for split in SPLITS}
