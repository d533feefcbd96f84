"""Zero-shot attribute transfer in float64 loops: ridge regression by least squares, every prediction, every
rank."""

import itertools
import math

import numpy as np


def predictor(z: list[list[float]], targets: list[list[float]], ridge: float) -> np.ndarray:
    """A (D x M) of eq. P3 by ordinary least squares: M more equations sqrt(ridge) a_m = 0 follow those of the
    images."""
    images, classes = np.array(z), np.array(targets)
    stacked = np.vstack((images, math.sqrt(ridge) * np.eye(images.shape[1])))
    padded = np.vstack((classes, np.zeros((images.shape[1], classes.shape[1]))))
    return np.linalg.lstsq(stacked, padded, rcond=None)[0].T


def average_precision(scores: list[float], relevant: list[bool]) -> float:
    """Mean over relevant items of the precision at their rank, higher scores first. In a tie the irrelevant
    item is first."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], relevant[i]))
    hits, total = 0, 0.0
    for rank, item in enumerate(order, start=1):
        if relevant[item]:
            hits += 1
            total += hits / rank
    return total / hits


def class_mean(embeddings: np.ndarray, labels: list[int], label: int) -> list[float]:
    rows = [
        row / math.sqrt(float(np.dot(row, row)))
        for row, row_label in zip(np.asarray(embeddings, dtype=np.float64), labels, strict=True)
        if row_label == label
    ]
    return (sum(rows) / len(rows)).tolist()


def transfer(
    attributes: np.ndarray,
    embeddings: np.ndarray,
    labels: list[int],
    fit: list[int],
    held_out: list[int],
    ridge: float,
) -> tuple[float, float]:
    """MAP of one split by L2 distance and by cosine: each held-out class ranks the predictions of all
    held-out images."""
    attributes = np.asarray(attributes, dtype=np.float64)
    fitted = [i for i, label in enumerate(labels) if label in fit]
    a = predictor(
        attributes[fitted].tolist(), [class_mean(embeddings, labels, labels[i]) for i in fitted], ridge
    )
    images = [i for i, label in enumerate(labels) if label in held_out]
    predictions = [a @ attributes[i] for i in images]
    by_l2, by_cosine = [], []
    for label in held_out:
        v = np.array(class_mean(embeddings, labels, label))
        relevant = [labels[i] == label for i in images]
        by_l2.append(average_precision([-math.dist(p, v) for p in predictions], relevant))
        by_cosine.append(
            average_precision(
                [float(np.dot(p, v)) / math.sqrt(float(np.dot(p, p) * np.dot(v, v))) for p in predictions],
                relevant,
            )
        )
    return sum(by_l2) / len(by_l2), sum(by_cosine) / len(by_cosine)


def chance(relevant: int, images: int) -> float:
    """Mean average precision over all orders of the images."""
    values = []
    for places in itertools.combinations(range(images), relevant):
        values.append(
            average_precision(
                [-float(rank) for rank in range(images)], [rank in places for rank in range(images)]
            )
        )
    return sum(values) / len(values)
