"""Float64 definitions of gradient noise: the covariance entry by entry, its nuclear norm by singular values,
gradients by differences."""

import math
from collections.abc import Callable

import numpy as np


def covariance(rows: list[list[float]]) -> np.ndarray:
    count, dim = len(rows), len(rows[0])
    mean = [sum(row[k] for row in rows) / count for k in range(dim)]
    return np.array(
        [
            [sum((row[a] - mean[a]) * (row[b] - mean[b]) for row in rows) / (count - 1) for b in range(dim)]
            for a in range(dim)
        ]
    )


def nuclear_norm(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


def directions(rows: list[list[float]]) -> list[list[float]]:
    """Unit vectors of the rows that are not zero."""
    lengths = [math.sqrt(sum(value * value for value in row)) for row in rows]
    return [
        [value / length for value in row] for row, length in zip(rows, lengths, strict=True) if length > 0
    ]


def over_training(rows: list[dict[str, float]], name: str) -> float:
    """gamma of IRT fig. 4, step by step: the mean over all iterations. Each row contains the mean since the
    previous row."""
    values: list[float] = []
    for row in rows:
        values += [row[name]] * (int(row["iteration"]) - len(values))
    return sum(values) / len(values)


def contrastive(z: np.ndarray, labels: list[int], margin: float) -> float:
    """IRT eq. 1 on one batch: per anchor the sum of 1 - s over positives and of s - margin over negatives
    above the margin; the mean over anchors."""
    total = 0.0
    for i in range(len(z)):
        for j in range(len(z)):
            if i == j:
                continue
            s = float(np.dot(z[i], z[j]))
            total += 1 - s if labels[i] == labels[j] else max(0.0, s - margin)
    return total / len(z)


def gradient(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences, one entry at a time."""
    result = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        result[index] = (function(up) - function(down)) / (2 * step)
    return result
