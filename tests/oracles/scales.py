"""One descriptor of several scales of an image in float64: bilinear resizing point by point, generalized mean
over scales."""

from collections.abc import Callable

import numpy as np


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """Bilinear: pixel centres at half-integers, the new grid over the old one, edge pixels extended."""
    height, width = image.shape[-2:]
    result = np.zeros((*image.shape[:-2], side, side))
    for row in range(side):
        for column in range(side):
            y = min(max((row + 0.5) * height / side - 0.5, 0), height - 1)
            x = min(max((column + 0.5) * width / side - 0.5, 0), width - 1)
            top, left = int(y), int(x)
            below, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = image[..., top, left] * (1 - (x - left)) + image[..., top, right] * (x - left)
            lower = image[..., below, left] * (1 - (x - left)) + image[..., below, right] * (x - left)
            result[..., row, column] = upper * (1 - (y - top)) + lower * (y - top)
    return result


def descriptor(
    image: np.ndarray, embed: Callable[[np.ndarray], np.ndarray], scales: list[float], p: float
) -> np.ndarray:
    """v / |v|, v = (mean over scales of embed(image at that scale)^p)^(1/p)."""
    total = 0.0
    for scale in scales:
        total = total + embed(resized(image, int(image.shape[-1] * scale))) ** p
    v = (total / len(scales)) ** (1 / p)
    return np.asarray(v / np.sqrt((v**2).sum()))
