"""Definitions of the layers of pipeline/networks, in float64 loops over images, positions and prototypes."""

import math

import numpy as np


def batch_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x (B, L, H, W) -> y, mean (L), unbiased variance (L), channel by channel over all images and
    positions."""
    y = np.empty_like(x)
    mean, variance = np.empty(x.shape[1]), np.empty(x.shape[1])
    for channel in range(x.shape[1]):
        values = x[:, channel].ravel()
        mean[channel] = values.sum() / len(values)
        squares = ((values - mean[channel]) ** 2).sum()
        variance[channel] = squares / (len(values) - 1)
        y[:, channel] = (
            weight[channel] * (x[:, channel] - mean[channel]) / math.sqrt(squares / len(values) + eps)
            + bias[channel]
        )
    return y, mean, variance


def second_order_attention(
    x: np.ndarray,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    output: np.ndarray,
    output_bias: np.ndarray,
    scale: float,
) -> np.ndarray:
    """x (P, L) of one image; query, key, value (P, I) are the results of the block's 1 x 1 convolutions;
    output (L, I) -> (P, L)."""
    result = x.copy()
    for p in range(len(x)):
        scores = np.array([scale * query[p] @ key[q] for q in range(len(x))])
        share = np.exp(scores - scores.max())
        share /= share.sum()
        weighted_sum = sum(share[q] * value[q] for q in range(len(x)))
        result[p] += output @ weighted_sum + output_bias
    return result


def coded_residuals(features: np.ndarray, prototypes: np.ndarray) -> np.ndarray:
    """CRT eq. 1. features (B, P, L), prototypes (M, L) -> (B, M, L): sum over positions of softplus(x . c) (x
    - c)."""
    result = np.zeros((len(features), len(prototypes), features.shape[2]))
    for b, image in enumerate(features):
        for k, prototype in enumerate(prototypes):
            for x in image:
                result[b, k] += math.log1p(math.exp(x @ prototype)) * (x - prototype)
    return result


def coded_residual_transform(
    features: np.ndarray,
    prototypes: np.ndarray,
    first: np.ndarray,
    first_bias: np.ndarray,
    second: np.ndarray,
    second_bias: np.ndarray,
) -> np.ndarray:
    """CRT eq. 2. first (M, L, h), first_bias (M, h), second (M, h, D), second_bias (D) -> (B, D): mean over
    prototypes of linear, GELU, linear.

    A shared network is repeated M times."""
    residuals = coded_residuals(features, prototypes)
    result = np.zeros((len(features), second.shape[2]))
    for b in range(len(features)):
        for k in range(len(prototypes)):
            hidden = np.array([gelu(value) for value in residuals[b, k] @ first[k] + first_bias[k]])
            result[b] += (hidden @ second[k] + second_bias) / len(prototypes)
    return result


def gelu(x: float) -> float:
    """x times the standard normal distribution function."""
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def focus(fine: np.ndarray, coarse: np.ndarray) -> np.ndarray:
    """fine (L, 2H, 2W), coarse (M, H, W) of one image -> (4L + M, H, W): each 2 x 2 square of the fine map
    gives four channels, followed by the coarse map."""
    channels, height, width = fine.shape[0], *coarse.shape[1:]
    result = np.zeros((4 * channels + len(coarse), height, width))
    for y in range(height):
        for x in range(width):
            folded = [
                fine[c, 2 * y + i, 2 * x + j] for c in range(channels) for i in range(2) for j in range(2)
            ]
            result[:, y, x] = [*folded, *coarse[:, y, x]]
    return result
