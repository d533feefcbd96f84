"""Pairs of classes whose labels are doubtful by the embedding.

    m   median cosine of all pairs of images of one class
    two classes are listed if a pair of images, one of each, has a cosine above m

Such images are more similar than half of the pairs within a class: one of them may have the wrong label, both
classes may be one product, or the network does not separate them.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

_BLOCK = 1 << 24  # cosines in memory at a time


@dataclass(frozen=True)
class SimilarClasses:
    """Two classes: their most similar images, and how many pairs of images are above m."""

    first: int  # position in the embeddings
    second: int
    similarity: float
    pairs: int


@dataclass(frozen=True)
class Doubtful:
    """`median`: m, None without a class of two images. `similar`: the most similar classes first."""

    median: float | None
    classes: int  # pairs of classes above m
    similar: tuple[SimilarClasses, ...]


def doubtful_labels(vectors: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"], most: int) -> Doubtful:
    """The `most` pairs of classes with the largest cosine above m, of unit vectors."""
    median = _median_within(vectors, labels)
    if median is None:
        return Doubtful(None, 0, ())
    best: dict[tuple[int, int], tuple[float, int, int]] = {}
    counts: dict[tuple[int, int], int] = {}
    columns = np.arange(len(labels))
    for start in range(0, len(labels), max(1, _BLOCK // len(labels))):
        rows = columns[start : start + max(1, _BLOCK // len(labels))]
        cosines = vectors[rows] @ vectors.T
        is_listed = (cosines > median) & (columns > rows[:, None]) & (labels[rows][:, None] != labels)
        left, right = np.nonzero(is_listed)
        values = cosines[left, right]
        classes = np.sort(np.stack([labels[rows[left]], labels[right]], axis=1), axis=1)
        order = np.lexsort((right, left, -values, classes[:, 1], classes[:, 0]))
        classes = classes[order]
        _, first, number = np.unique(classes, axis=0, return_index=True, return_counts=True)
        for place, count in zip(first.tolist(), number.tolist(), strict=True):
            key = int(classes[place, 0]), int(classes[place, 1])
            pair = order[place]
            value = float(values[pair]), int(rows[left[pair]]), int(right[pair])
            counts[key] = counts.get(key, 0) + count
            if key not in best or value[0] > best[key][0]:
                best[key] = value
    ordered = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:most]
    similar = (SimilarClasses(first, second, value, counts[key]) for key, (value, first, second) in ordered)
    return Doubtful(median, len(best), tuple(similar))


def _median_within(vectors: Float[np.ndarray, "N D"], labels: Int[np.ndarray, " N"]) -> float | None:
    parts = []
    for label in np.unique(labels):
        members = vectors[labels == label]
        parts.append((members @ members.T)[np.triu_indices(len(members), 1)])
    cosines = np.concatenate(parts) if parts else np.empty(0)
    return float(np.median(cosines)) if len(cosines) else None
