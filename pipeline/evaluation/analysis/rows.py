"""Unit rows in float64, one block at a time, so that no step needs a second copy of a large array."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_matrix

BLOCK = 8192  # rows; 8192 x 512 float64 is 32 MiB


def unit_blocks(embeddings: Float[np.ndarray, "N D"]) -> Iterator[tuple[slice, Float[np.ndarray, "n D"]]]:
    """Yields (rows, x / |x|) over consecutive blocks.

    Stored embeddings have unit norm in float32 precision. The division in float64 makes identities that
    assume |x| = 1 exact. Raises ValueError for a row without direction: all zeros, NaN or infinite.
    """
    for start in range(0, len(embeddings), BLOCK):
        rows = slice(start, min(start + BLOCK, len(embeddings)))
        block = np.asarray(embeddings[rows], dtype=np.float64)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        bad = ~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0))
        if bad.any():
            row = int(np.argmax(bad))
            raise ValueError(f"embedding {start + row} has no direction: norm {norms[row, 0]}, expected 1")
        yield rows, block / norms


def class_means(
    embeddings: Float[np.ndarray, "N D"], label: Int[np.ndarray, " N"], classes: int
) -> Float[np.ndarray, "C D"]:
    """Mean of the unit rows of each class, not normalised. Labels are 0 .. C - 1, each with a row."""
    means = np.zeros((classes, embeddings.shape[1]))
    for rows, x in unit_blocks(embeddings):
        places = (label[rows], np.arange(len(x)))  # of a 1 in C x n: the class of each row
        means += csr_matrix((np.ones(len(x)), places), shape=(classes, len(x))) @ x
    return means / np.bincount(label, minlength=classes)[:, None]
