"""Finds pictures with equal upright RGB pixels, in any file format. A copy with other metadata is a
duplicate, a picture that was compressed again with loss is not.

There are two steps, so that most pictures need no full decode. First, pictures with an equal fingerprint
(size and first rows of pixels) become candidates. The fingerprint depends only on the pixels, so pictures
with equal pixels are always candidates together. Then the sha256 of all pixels is compared among the
candidates.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import UInt8

from unseen.data.ingest.collection import Picture

LISTED_PAIRS = 20
# With the two rows that a partial decode of a JPEG discards (completeness._MARGIN): 8, one row of JPEG
# blocks.
FIRST_ROWS = 6
_GROWTH = 5  # factor on the number of rows while all of them have one colour, as above a product on white


def fingerprint(height: int, width: int, rows: Callable[[int], UInt8[np.ndarray, "n W 3"]]) -> bytes:
    """sha256 of the size and of the first 6 rows, or of 30, 150, ... rows until two of their pixels differ.
    `rows(n)` returns the first n rows, n <= `height`."""
    count = min(FIRST_ROWS, height)
    pixels = rows(count).tobytes()
    while count < height and pixels == pixels[:3] * (len(pixels) // 3):
        count = min(_GROWTH * count, height)
        pixels = rows(count).tobytes()
    return hashlib.sha256(f"{height} {width} ".encode() + pixels).digest()


def pixel_digest(pixels: UInt8[np.ndarray, "H W 3"]) -> bytes:
    """sha256 of the size of a picture and of all its pixels."""
    digest = hashlib.sha256(f"{pixels.shape}".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


class Candidates:
    """The rows whose fingerprint equals that of another row. Rows are added in ascending order; 32 bytes per
    row are stored."""

    def __init__(self) -> None:
        self._first_row: dict[bytes, int] = {}
        self._rows: set[int] = set()

    def add(self, row: int, fingerprint: bytes) -> None:
        first = self._first_row.setdefault(fingerprint, row)
        if first != row:
            self._rows |= {first, row}

    def rows(self) -> list[int]:
        """The candidates in ascending order."""
        return sorted(self._rows)


def summary(pictures: Iterable[tuple[Picture, bytes]]) -> dict[str, Any]:
    """Counts of duplicates, and the first pairs: first pairs of two classes, then pairs within a class.
    `pictures`: in row order, each with the digest of all its pixels.

    images: duplicates, without the first picture of each set of equal ones; across_classes: duplicates of a
    picture of another class; across_splits: duplicates whose first picture is in another split.
    """
    first_of: dict[bytes, Picture] = {}
    classes_of: dict[bytes, set[str]] = {}
    images = across_classes = across_splits = 0
    pairs: dict[bool, list[list[str]]] = {True: [], False: []}  # by whether the classes differ
    for picture, digest in pictures:
        first = first_of.setdefault(digest, picture)
        if first is picture:
            classes_of[digest] = {picture.class_name}
            continue
        classes = classes_of[digest]
        across = classes != {picture.class_name}
        classes.add(picture.class_name)
        images += 1
        across_classes += across
        across_splits += first.split != picture.split
        if len(pairs[across]) < LISTED_PAIRS:
            pairs[across].append([first.source, picture.source])
    return {
        "images": images,
        "across_classes": across_classes,
        "across_splits": across_splits,
        "pairs": (pairs[True] + pairs[False])[:LISTED_PAIRS],
    }
