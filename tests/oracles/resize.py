"""Antialiased resizing written from the definition in float64, one output pixel at a time.

    out[i] = sum_j k((j + 1/2 - c) / f) in[j] / sum_j k(...)      c = (i + 1/2) s,  s = input / output length,
    f = max(s, 1)

along rows, then along columns, rounded and clamped to 0 ... 255 after each. k: the triangle, or Keys' cubic
with a = -1/2.
"""

import numpy as np

A = -0.5


def triangle(x: float) -> float:
    return max(0.0, 1 - abs(x))


def cubic(x: float) -> float:
    x = abs(x)
    if x < 1:
        return (A + 2) * x**3 - (A + 3) * x**2 + 1
    return A * x**3 - 5 * A * x**2 + 8 * A * x - 4 * A if x < 2 else 0.0


def resized(picture: np.ndarray, height: int, width: int, interpolation: str) -> np.ndarray:
    """(H, W, C) -> (height, width, C), whole numbers."""
    rows = _along_first(picture.astype(float).swapaxes(0, 1), width, interpolation).swapaxes(0, 1)
    return _along_first(rows, height, interpolation)


def _along_first(values: np.ndarray, length: int, interpolation: str) -> np.ndarray:
    kernel = {"bilinear": triangle, "bicubic": cubic}[interpolation]
    step = len(values) / length
    out = np.empty((length, *values.shape[1:]))
    for i in range(length):
        weights = np.array([kernel((j + 0.5 - (i + 0.5) * step) / max(step, 1)) for j in range(len(values))])
        out[i] = np.tensordot(weights / weights.sum(), values, 1)
    return np.clip(np.floor(out + 0.5), 0, 255)
