"""A map of the embedding in two dimensions: the first two principal axes of some images of some test classes.

    X = U S V^T of the centred unit rows of these images        x = U_1 S_1,  y = U_2 S_2

The classes are a seeded sample of the labels, so that all methods of a data set show the same images. The
sign of an axis makes the value of largest magnitude positive. A projection to two dimensions loses most of
the variance of an embedding: `variance` has the shares of both axes. Classes that overlap in the map can be
apart in the embedding.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

CLASSES, IMAGES, SEED = 8, 16, 0  # as many classes as the report has colours; images of each


class EmbeddingMap(NamedTuple):
    """n images, sorted by class and row id."""

    rows: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "n 2"]
    variance: Float[np.ndarray, " 2"]


def embedding_map(
    row_ids: Int[np.ndarray, " N"], labels: Int[np.ndarray, " N"], embeddings: Float[np.ndarray, "N D"]
) -> EmbeddingMap | None:
    """The map of the first IMAGES images of CLASSES classes; None for fewer than three images, fewer than two
    dimensions, and images without variance."""
    names = np.unique(labels)
    drawn = np.sort(np.random.default_rng(SEED).permutation(names)[:CLASSES])
    chosen = np.concatenate([np.flatnonzero(labels == name)[:IMAGES] for name in drawn])
    x = embeddings[chosen].astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    centred = x - x.mean(0)
    if min(centred.shape) < 2 or len(chosen) < 3:
        return None
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    total = (values**2).sum()
    if total <= len(chosen) * np.finfo(np.float64).eps:
        return None
    points = left[:, :2] * values[:2]
    largest = np.abs(points).argmax(0)
    points = points * np.where(points[largest, [0, 1]] < 0, -1.0, 1.0)
    return EmbeddingMap(row_ids[chosen], labels[chosen], points, values[:2] ** 2 / total)
