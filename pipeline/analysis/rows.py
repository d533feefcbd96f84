"""Unit rows in float64, a block at a time, so that no step holds a second copy of a large embedding."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

BLOCK = 8192  # rows; 8192 x 512 float64 is 32 MiB


def unit_blocks(embeddings: Float[np.ndarray, "N D"]) -> Iterator[tuple[slice, Float[np.ndarray, "n D"]]]:
    """Yields (rows, x / |x|) over consecutive blocks.

    Embeddings come with unit norm to float32 precision; dividing again in float64 makes the identities that rest on |x| = 1 exact.
    Raises ValueError for a row that has no direction: all zeros, NaN or infinite.
    """
    for start in range(0, len(embeddings), BLOCK):
        rows = slice(start, min(start + BLOCK, len(embeddings)))
        block = np.asarray(embeddings[rows], dtype=np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        bad = ~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0))
        if bad.any():
            raise ValueError(f"embedding {start + int(np.argmax(bad))} has no direction: norm {norms[np.argmax(bad), 0]}, expected 1")
        yield rows, block / norms


def class_means(embeddings: Float[np.ndarray, "N D"], label: Int[np.ndarray, " N"], classes: int) -> Float[np.ndarray, "C D"]:
    """Mean of the unit rows of each class, itself shorter than 1. `label` counts from 0 and every class has a row."""
    means = np.zeros((classes, embeddings.shape[1]))
    for rows, x in unit_blocks(embeddings):
        means += _indicator(label[rows], classes) @ x
    return means / np.bincount(label, minlength=classes)[:, None]


def _indicator(label: Int[np.ndarray, " n"], classes: int) -> csr_matrix:
    """C x n, one where the column is of the row's class."""
    n = len(label)
    return csr_matrix((np.ones(n), (label, np.arange(n))), shape=(classes, n))
