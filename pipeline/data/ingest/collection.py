"""The result of a source: the list of its pictures, a function that reads a picture, and tables that refer to
pictures. Also the requirements on the list."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from jaxtyping import UInt8

from unseen.data.shard_schema import SPLITS
from unseen.runtime.errors import UserError

Box = tuple[float, float, float, float]
Content = bytes | UInt8[np.ndarray, "H W 3"] | UInt8[np.ndarray, "H W"]
RowOf = Callable[[str], int]  # the row id of a picture, by its source
Extra = Callable[[RowOf], pa.Table]


@dataclass(frozen=True, slots=True)
class Picture:
    """One listed image. `source` is its unique name within the data set, with forward slashes."""

    source: str
    class_name: str
    split: str
    is_query: bool = True
    is_gallery: bool = True
    group: str | None = None  # a unit above or below the class: a super-class, an alphabet, a 3D model
    # x0, y0, x1, y1 of the query region, in pixels of the file as stored, before its orientation is applied
    box: Box | None = None


@dataclass(frozen=True)
class Collection:
    """The pictures of a data set.

    location: path or name of the set, for messages.
    read(source): the encoded bytes of a picture, or its pixels if the set has no image files (they are stored
      as PNG). It is sent to worker processes and must pickle.
    facts: entries of the manifest.
    extras[name]: a function that makes the table `name`.parquet beside the shards: ground truth that classes
      cannot represent, as row ids.
    by_class: False if only such a table defines which images match. Classes are then not checked.
    """

    location: str
    pictures: list[Picture]
    read: Callable[[str], Content]
    facts: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Extra] = field(default_factory=dict)
    by_class: bool = True

    def in_order(self) -> list[Picture]:
        """The pictures in row order: train before test, then by class, then by source. The result does not
        depend on the order of the list."""
        return sorted(self.pictures, key=lambda p: (SPLITS.index(p.split), p.class_name, p.source))


def require_usable(pictures: Iterable[Picture], location: str) -> dict[str, int]:
    """Checks that retrieval of unseen classes can be trained and measured on the pictures. Returns the number
    of single-image classes in each split.

    Raises UserError for: no image, one class, fewer than two classes in a split, train classes of one image
    each, no query with a match. Single classes of one image are allowed: training excludes them, and in the
    test gallery they are additional wrong answers.
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
    _require_classes(images, location)

    def has_match(name: str) -> bool:
        """Whether a query of the class has another image of the class in the gallery."""
        only_itself = queries[name] == gallery[name] == both[name] == 1
        return queries[name] > 0 and gallery[name] > 0 and not only_itself

    if not any(map(has_match, queries)):
        reason = "no test query has another image of its class in the gallery"
        if max(images["test"].values()) < 2:
            reason = "every test class has only one image"
        raise UserError(
            f"{location}: {reason}.",
            "Recall counts matches: give test classes two images or more, "
            "or correct is_query and is_gallery.",
        )
    return {split: sum(count == 1 for count in images[split].values()) for split in SPLITS}


def _require_classes(images: dict[str, Counter[str]], location: str) -> None:
    """Checks the number of classes, and of images in the train classes. `images`: images per class, by
    split."""
    classes = sum(map(len, images.values()))
    if classes == 0:
        raise UserError(
            f"{location} contains no image.",
            "Put one directory of images per class there, or correct the path of the source.",
        )
    if classes == 1:
        (name,) = (name for counter in images.values() for name in counter)
        raise UserError(
            f"{location} contains only one class, {name}.",
            "Retrieval of unseen classes needs at least two classes to train on and two to test on.",
        )
    for split in SPLITS:
        if len(images[split]) < 2:
            raise UserError(
                f"{location}: {len(images[split])} of {classes} classes are in the {split} split; "
                "it needs at least two.",
                "Add classes, or change the source's test_share or the split column of its CSV.",
            )
    if max(images["train"].values()) < 2:
        raise UserError(
            f"{location}: every train class has only one image.",
            "A loss needs pairs of the same class: give classes two images or more.",
        )
