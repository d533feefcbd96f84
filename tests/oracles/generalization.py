"""Float64 definitions of the analysis, pair by pair and value by value, written from the formulas."""

import math

import numpy as np


def cosine_distance(a: np.ndarray, b: np.ndarray) -> float:
    return 1.0 - float(np.dot(a, b)) / (math.sqrt(float(np.dot(a, a))) * math.sqrt(float(np.dot(b, b))))


def density(embeddings: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """(intra, inter, ratio) by loops over pairs. Intra excludes classes of one image."""
    embeddings = np.asarray(embeddings, dtype=np.float64)
    unit = np.stack([row / math.sqrt(float(np.dot(row, row))) for row in embeddings])
    intra, centres = [], []
    for label in sorted(set(labels.tolist())):
        rows = unit[labels == label]
        centres.append(rows.mean(axis=0))
        pairs = [
            cosine_distance(rows[i], rows[j]) for i in range(len(rows)) for j in range(len(rows)) if i != j
        ]
        if pairs:
            intra.append(sum(pairs) / len(pairs))
    between = [
        cosine_distance(centres[i], centres[j])
        for i in range(len(centres))
        for j in range(len(centres))
        if i != j
    ]
    d_intra, d_inter = sum(intra) / len(intra), sum(between) / len(between)
    return d_intra, d_inter, d_intra / max(d_inter, 1e-8)


def kl_uniform_first(values: list[float]) -> float:
    """KL(u || s) with s the values divided by their sum."""
    total, d = sum(values), len(values)
    return sum((1 / d) * math.log((1 / d) / (value / total)) for value in values)


def kl_uniform_second(values: list[float]) -> float:
    """KL(s || u), which is ln d minus the entropy of s."""
    total, d = sum(values), len(values)
    return sum((value / total) * math.log((value / total) * d) for value in values)


def singular_values(embeddings: np.ndarray) -> np.ndarray:
    """All singular values of the matrix, largest first."""
    unit = np.asarray(embeddings, dtype=np.float64)
    unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
    return np.linalg.svd(unit, compute_uv=False)


def pair_similarities(embeddings: np.ndarray, labels: np.ndarray) -> tuple[list[float], list[float]]:
    """Cosines of all unordered pairs: (same class, different class)."""
    positive, negative = [], []
    for i in range(len(labels)):
        for j in range(i + 1, len(labels)):
            (positive if labels[i] == labels[j] else negative).append(
                1.0 - cosine_distance(embeddings[i], embeddings[j])
            )
    return positive, negative
