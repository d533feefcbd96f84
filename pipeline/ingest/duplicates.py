"""Pictures with the same upright RGB pixels, whatever file holds them: a copy with other metadata counts, a
second JPEG generation does not.

Two steps, because most pictures are no duplicates and most of their pixels need never be made. The first rows
propose: they are a function of the pixels alone, so equal pictures are always proposed together, whichever
way their rows came about. The sha256 of all pixels decides, among the pictures that were proposed.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from jaxtyping import UInt8

from pipeline.ingest.collection import Picture

LISTED_PAIRS = 20
FIRST_ROWS = 6  # with the two that a JPEG gives away for them, one row of its blocks
_STEP = 5  # times as many rows are looked at where all so far are of one colour, as above a product on white


def fingerprint(height: int, width: int, rows: Callable[[int], UInt8[np.ndarray, "n W 3"]]) -> bytes:
    """sha256 of the size and of the first 6 rows, or of 30, 150, ... until two of their pixels differ.
    `rows(n)`: the first n rows, n <= `height`."""
    count = min(FIRST_ROWS, height)
    found = rows(count).tobytes()
    while count < height and found == found[:3] * (len(found) // 3):
        count = min(_STEP * count, height)
        found = rows(count).tobytes()
    return hashlib.sha256(f"{height} {width} ".encode() + found).digest()


def digest_of(pixels: UInt8[np.ndarray, "H W 3"]) -> bytes:
    """sha256 of the size of a picture and of all its pixels."""
    digest = hashlib.sha256(f"{pixels.shape}".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.digest()


class Proposals:
    """Which rows share a fingerprint with another. Rows are seen in ascending order; 32 bytes of each are
    kept."""

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._alike: set[int] = set()

    def see(self, row: int, fingerprint: bytes) -> None:
        first = self._first.setdefault(fingerprint, row)
        if first != row:
            self._alike |= {first, row}

    def rows(self) -> list[int]:
        """Ascending."""
        return sorted(self._alike)


def summary(pictures: Iterable[tuple[Picture, bytes]]) -> dict[str, Any]:
    """Counts, and the first pairs, those across classes before those within one. `pictures`: in row order,
    each with a digest of all its pixels.

    images: beyond the first of each; across_classes: of these, how many share their pixels with another
    class; across_splits: with another split than that of the first.
    """
    firsts: dict[bytes, Picture] = {}
    classes: dict[bytes, set[str]] = {}
    images = across_classes = across_splits = 0
    pairs: dict[bool, list[list[str]]] = {True: [], False: []}
    for picture, pixels in pictures:
        first = firsts.setdefault(pixels, picture)
        if first is picture:
            classes[pixels] = {picture.class_name}
            continue
        others = classes[pixels]
        across = others != {picture.class_name}
        others.add(picture.class_name)
        images += 1
        across_classes += across
        across_splits += first.split != picture.split
        if len(pairs[across]) < LISTED_PAIRS:
            pairs[across].append([first.source, picture.source])
    listed = (pairs[True] + pairs[False])[:LISTED_PAIRS]
    return {
        "images": images,
        "across_classes": across_classes,
        "across_splits": across_splits,
        "pairs": listed,
    }
