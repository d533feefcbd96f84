"""Groups of near-duplicates in a catalog: copies, also resized or compressed again, and photos of a series
that hardly differ.

Two pictures are near-duplicates if both hold:

    cosine of their vectors          >= SIMILARITY     selects candidates among the NEIGHBOURS nearest of each
    picture RMS difference of thumbnails     <= DIFFERENCE     32 x 32 pixels, RGB, grey levels 0 to 255

Pictures that are linked by a chain of such pairs form a group. A cropped or mirrored copy has other
thumbnails and is not found. With an approximate index a pair can be missed.
"""

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import Float32

from unseen.data.decode import decode
from unseen.data.heif import readable
from unseen.evaluation.index.index import search
from unseen.runtime.files import regular
from unseen_search.catalog.catalog import Catalog

SIMILARITY = 0.9
DIFFERENCE = 6.0  # JPEG at quality 40, or a copy at half of the size, differs by less
NEIGHBOURS = 10
SIDE = 32


class Copy(NamedTuple):
    """A picture of a group."""

    path: str  # below the folder of the pictures
    label: str | None
    difference: float | None  # from the first picture of the group; 0 for equal pixels


class Group(NamedTuple):
    """Near-duplicates, in the order of their paths."""

    pictures: list[Copy]
    labels: set[str]

    @property
    def contradictory(self) -> bool:
        """Whether the pictures have different labels."""
        return len(self.labels) > 1


class Duplicates(NamedTuple):
    """All groups, and the pictures that could not be compared because their files are missing or changed."""

    groups: list[Group]
    unread: list[str]


def duplicates(
    catalog: Catalog, similarity: float = SIMILARITY, difference: float = DIFFERENCE
) -> Duplicates:
    """The groups of near-duplicates of a catalog, by the path of their first picture."""
    vectors, rows = catalog.vectors(), np.arange(len(catalog))
    neighbours, cosines = search(catalog.index, vectors, rows, min(NEIGHBOURS, max(1, len(catalog) - 1)))
    thumbnails: dict[int, Float32[np.ndarray, "S S 3"] | None] = {}

    def pixels(row: int) -> Float32[np.ndarray, "S S 3"] | None:
        if row not in thumbnails:
            thumbnails[row] = thumbnail(catalog.photos / catalog.paths[row])
        return thumbnails[row]

    parent = list(range(len(catalog)))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    first, column = np.nonzero((cosines >= similarity) & (neighbours >= 0))
    for row, other in zip(first.tolist(), neighbours[first, column].tolist(), strict=True):
        if root(row) == root(other):
            continue
        distance = rms(pixels(row), pixels(other))
        if distance is not None and distance <= difference:
            low, high = sorted((root(row), root(other)))
            parent[high] = low
    members: dict[int, list[int]] = {}
    for row in rows.tolist():
        members.setdefault(root(row), []).append(row)
    groups = [
        _group(catalog, [(row, rms(pixels(group[0]), pixels(row))) for row in group])
        for group in members.values()
        if len(group) > 1
    ]
    unread = sorted(catalog.paths[row] for row, values in thumbnails.items() if values is None)
    return Duplicates(sorted(groups, key=lambda group: group.pictures[0].path), unread)


def _group(catalog: Catalog, members: list[tuple[int, float | None]]) -> Group:
    copies = [Copy(catalog.paths[row], catalog.labels[row], distance) for row, distance in members]
    return Group(copies, {copy.label for copy in copies if copy.label is not None})


def thumbnail(path: Path) -> Float32[np.ndarray, "S S 3"] | None:
    """The picture of a file at 32 x 32 pixels; None if its file is missing or no picture any more."""
    try:
        encoded = readable(regular(path).read_bytes())
        values = decode(np.frombuffer(encoded, np.uint8))
    except (OSError, ValueError):
        return None
    return cv2.resize(values, (SIDE, SIDE), interpolation=cv2.INTER_AREA).astype(np.float32)


def rms(
    first: Float32[np.ndarray, "S S 3"] | None, second: Float32[np.ndarray, "S S 3"] | None
) -> float | None:
    """The RMS difference in grey levels; None without both pictures."""
    if first is None or second is None:
        return None
    return float(np.sqrt(np.square(first - second).mean()))
