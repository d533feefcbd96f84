"""Whitening in float64 by matrix square roots and loops over rows."""

import numpy as np


def covariance(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = rows.astype(np.float64)
    mean = sum(rows) / len(rows)
    return mean, sum(np.outer(row - mean, row - mean) for row in rows) / len(rows)


def between_pairs(rows: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return sum(np.outer(rows[a] - rows[b], rows[a] - rows[b]) for a, b in pairs) / len(pairs)
