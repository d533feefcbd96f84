"""Every pooling except transport over the positions of one image, f (L, H, W), in float64 numpy. Weights are
arrays."""

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def cells(f: Array) -> list[Array]:
    """The features of an image, one per position."""
    return [f[:, y, x] for y in range(f.shape[1]) for x in range(f.shape[2])]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def clipped(u: Array) -> Array:
    length = math.sqrt((u * u).sum())
    return u / length if length > 1 else u


def generalized_mean(f: Array, p: float) -> Array:
    return np.array(
        [(sum(max(value, 1e-6) ** p for value in channel.ravel()) / channel.size) ** (1 / p) for channel in f]
    )


def rmac(f: Array, levels: int) -> Array:
    """Regions are placed by their centres, as in the released code."""
    _, height, width = f.shape
    w = min(height, width)
    best, idx = math.inf, 0
    for i, steps in enumerate([2, 3, 4, 5, 6, 7]):
        b = (max(height, width) - w) / (steps - 1)
        if abs((w**2 - w * b) / w**2 - 0.4) < best:
            best, idx = abs((w**2 - w * b) / w**2 - 0.4), i
    more_w, more_h = (idx + 1) * (height < width), (idx + 1) * (height > width)

    def unit_maximum(region: Array) -> Array:
        peak = region.max(axis=(1, 2))
        return peak / (np.linalg.norm(peak) + 1e-6)

    total = unit_maximum(f)
    for level in range(1, levels + 1):
        wl = math.floor(2 * w / (level + 1))
        if wl == 0:
            continue
        half = math.floor(wl / 2 - 1)
        step_w = 0 if level + more_w == 1 else (width - wl) / (level + more_w - 1)
        step_h = 0 if level + more_h == 1 else (height - wl) / (level + more_h - 1)
        for i in range(level + more_h):
            for j in range(level + more_w):
                top, left = (
                    math.floor(half + i * step_h + 1e-9) - half,
                    math.floor(half + j * step_w + 1e-9) - half,
                )
                total = total + unit_maximum(f[:, top : top + wl, left : left + wl])
    return total


def generalized_max(f: Array, regularization: float) -> Array:
    """Ridge regression by its normal equations of size L."""
    moment = sum(np.outer(v, v) for v in cells(f)) + regularization * np.eye(len(f))
    return np.linalg.solve(moment, sum(cells(f)))


def cbam(f: Array, squeeze: Array, expand: Array, spatial: Array) -> Array:
    """spatial (2, 3, 3): its weights for the maximum and the mean."""

    def mlp(u: Array) -> Array:
        return expand @ relu(squeeze @ u)

    x = f * sigmoid(mlp(np.max(cells(f), axis=0)) + mlp(np.mean(cells(f), axis=0)))[:, None, None]
    _, height, width = f.shape
    total = np.zeros(len(f))
    for y0 in range(height):
        for x0 in range(width):
            score = 0.0
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    if 0 <= y0 + dy < height and 0 <= x0 + dx < width:
                        pixel = x[:, y0 + dy, x0 + dx]
                        score += (
                            spatial[0, dy + 1, dx + 1] * pixel.max()
                            + spatial[1, dy + 1, dx + 1] * pixel.mean()
                        )
            total += x[:, y0, x0] * sigmoid(np.array(score))
    return total / (height * width)


def crow(f: Array) -> Array:
    x = [relu(v) for v in cells(f)]
    s = np.array([v.sum() for v in x])
    alpha = np.sqrt(s / math.sqrt((s * s).sum()))
    q = sum(sigmoid(v) for v in x) / len(x)
    beta = np.log((len(q) * 1e-16 + q.sum()) / (1e-16 + q))
    return sum(a * v for a, v in zip(alpha, x, strict=True)) / len(x) * beta


def delf(f: Array, weight: Array, bias: Array, score: Array, offset: float) -> Array:
    weights = [math.log1p(math.exp(score @ relu(weight @ v + bias) + offset)) for v in cells(f)]
    return sum(a * v for a, v in zip(weights, cells(f), strict=True)) / len(weights)


def weldon(x: Array, top: int, bottom: int) -> Array:
    """Input: transformed features."""
    return np.array([sum(sorted(c.ravel())[-top:]) + sum(sorted(c.ravel())[:bottom]) for c in x])


def smoothing(f: Array, weight: Array, bias: Array) -> Array:
    _, height, width = f.shape
    total = np.zeros(len(weight))
    for y in range(height):
        for x in range(width):
            around = f[:, max(y - 1, 0) : y + 2, max(x - 1, 0) : x + 2].mean(axis=(1, 2))
            total += np.linalg.norm(f[:, y, x]) * (weight @ around + bias)
    return total / (height * width)


def netvlad(x: Array, assignment: Array, bias: Array, centers: Array) -> Array:
    """Input: transformed features."""
    sums = np.zeros_like(centers)
    for v in cells(x):
        score = np.exp(assignment @ v + bias)
        for k, share in enumerate(score / score.sum()):
            sums[k] += share * (v - centers[k])
    return np.concatenate([s / np.linalg.norm(s) for s in sums])


def balanced_costs(x: Array, prototypes: Array) -> Array:
    return np.array([[np.linalg.norm(clipped(w) - clipped(v)) for v in cells(x)] for w in prototypes])


def sinkhorn(cost: Array, epsilon: float, iterations: int) -> Array:
    """Scalings of exp(-epsilon c): rows and columns alternate, columns are last."""
    kernel = np.exp(-epsilon * cost)
    m, n = cost.shape
    u = np.ones(m)
    for _ in range(iterations):
        v = 1 / n / (kernel.T @ u)
        u = 1 / m / (kernel @ v)
    v = 1 / n / (kernel.T @ u)
    return u[:, None] * kernel * v


def gsop(x: Array, channel: dict[str, Array], spatial: dict[str, Array]) -> Array:
    """Input: transformed features. Batch norms only divide by sqrt(1 + 1e-3), the statistics of a new network
    in evaluation.

    Each branch: features (A, D), features_bias, forms (N, 4, N), forms_bias (N, 4), out, out_bias."""
    calm = 1 / math.sqrt(1 + 1e-3)

    def projected(branch: dict[str, Array]) -> list[Array]:
        return [relu(calm * (branch["features"] @ relu(v) + branch["features_bias"])) for v in cells(x)]

    def forms(branch: dict[str, Array], matrix: Array) -> Array:
        rows = [branch["forms"][n] @ (calm * matrix[n]) + branch["forms_bias"][n] for n in range(len(matrix))]
        return np.concatenate(rows)

    y = projected(channel)
    moment = sum(np.outer(v, v) for v in y) / len(y) ** 2
    by_channel = sigmoid(channel["out"] @ forms(channel, moment) + channel["out_bias"])
    y = projected(spatial)
    gram = np.array([[a @ b for b in y] for a in y]) / len(x) ** 2
    by_position = sigmoid(spatial["out"] @ relu(forms(spatial, gram)) + spatial["out_bias"])
    return sum(
        np.maximum(by_channel * v, s * relu(v)) for s, v in zip(by_position, cells(x), strict=True)
    ) / len(y)


def attribute_average(x: Array, prototypes: Array, scale: float) -> Array:
    """The attributes of transformed features."""
    total = np.zeros(len(prototypes))
    for v in cells(x):
        score = np.exp(scale * prototypes @ clipped(v))
        total += score / score.sum()
    return total / len(cells(x))
