"""The rivals of photos without labels: each photo is a product of its own.

    u_i    largest cosine of photo i with a photo that is no near-duplicate of it (duplicates.py)

Near-duplicates are one product. Other photos of the same product count as false matches. u_i is therefore at
least that with labels, and so is the rate R(t) of unknown.py: the threshold is conservative. Without other
photos of their products the two are equal.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from unseen.evaluation.decision import LeftOut
from unseen.evaluation.index.index import Index, search, vectors_at
from unseen_search.catalog.duplicates import DIFFERENCE, NEIGHBOURS, SIMILARITY, rms, thumbnail

MOST_PHOTOS = 2000  # that are drawn: their pixels are read


def rivals_without_labels(
    index: Index, photos: Path, paths: Sequence[str], most: int = MOST_PHOTOS, seed: int = 0
) -> LeftOut:
    """The rivals of all photos, or of `most` drawn ones. Photo i of `paths` (below `photos`) is row i of the
    index. `label` and `rival` are the first row of a group of near-duplicates; `known` is NaN.

    A file that is missing or damaged is no near-duplicate. Of more than NEIGHBOURS near-duplicates of a photo
    the last one is its rival.

    Raises ValueError for fewer than two photos.
    """
    count = len(paths)
    if count < 2:
        raise ValueError("rivals need two photos or more")
    rows = np.arange(count)
    if count > most:
        rows = np.sort(np.random.default_rng(seed).choice(count, most, replace=False))
    neighbours, cosines = search(index, vectors_at(index, rows), rows, min(NEIGHBOURS + 1, count - 1))
    thumbnails: dict[int, Float32[np.ndarray, "S S 3"] | None] = {}

    def pixels(row: int) -> Float32[np.ndarray, "S S 3"] | None:
        if row not in thumbnails:
            thumbnails[row] = thumbnail(photos / paths[row])
        return thumbnails[row]

    group = np.arange(count)
    other, rival = np.full(len(rows), -1, np.float32), rows.copy()
    for place, row in enumerate(rows.tolist()):
        for cosine, neighbour in zip(cosines[place].tolist(), neighbours[place].tolist(), strict=True):
            if neighbour < 0:  # an approximate index returned fewer
                break
            other[place], rival[place] = cosine, neighbour
            if cosine < SIMILARITY:
                break
            distance = rms(pixels(row), pixels(neighbour))
            if distance is None or distance > DIFFERENCE:
                break
            first, second = sorted((int(group[row]), int(group[neighbour])))
            group[group == second] = first
    unknown = np.full(len(rows), np.nan, np.float32)
    return LeftOut(rows, group[rows], other, group[rival], unknown, group[rows])
