"""Vectors for tests of search and evaluation."""

import numpy as np


def unit(x: np.ndarray) -> np.ndarray:
    """The rows with unit length, in float32."""
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def gaussian(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Unit vectors of random directions."""
    return unit(np.random.default_rng(seed).standard_normal((rows, dim)))
