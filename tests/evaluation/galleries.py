"""Small galleries with ties and near ties, on which every engine equals the definition."""

import numpy as np

from tests.vectors import gaussian, unit


def signs(rows: int, bits: int, seed: int = 0) -> np.ndarray:
    return unit(np.sign(np.random.default_rng(seed).standard_normal((rows, bits))))


def repeated(rows: int, dim: int, distinct: int, seed: int = 0) -> np.ndarray:
    return gaussian(distinct, dim, seed)[np.random.default_rng(seed + 1).integers(distinct, size=rows)]


def nearly_equal(rows: int, dim: int, spread: float, seed: int = 0) -> np.ndarray:
    return unit(gaussian(1, dim, seed) + spread * np.random.default_rng(seed).standard_normal((rows, dim)))


GALLERIES = {
    "gaussian": gaussian(60, 12),
    "signs": signs(60, 4),
    "long signs": signs(60, 37),
    "repeated": repeated(60, 7, 9),
    "one point": repeated(60, 5, 1),
    "nearly one point": nearly_equal(60, 16, 1e-7),
    "one dimension": np.where(np.arange(60)[:, None] % 3, 1, -1).astype(np.float32),
    "zeros among them": gaussian(60, 6) * (np.arange(60)[:, None] % 4 > 0).astype(np.float32),
}
