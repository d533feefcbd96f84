"""Losses on Euclidean distances, pair by pair and triplet by triplet in float64."""

import torch
from torch import Tensor

from tests.oracles.losses import memory_or_batch


def distance(a: Tensor, b: Tensor) -> Tensor:
    """|| a - b ||, with gradient 0 at 0."""
    return (a - b).norm() if bool((a != b).any()) else (a - b).sum() * 0


def _sets(
    labels: list[int], references: Tensor, reference_labels: list[int], self_index: list[int] | None, i: int
) -> tuple[list[Tensor], list[Tensor]]:
    positives = [
        r
        for j, (r, y) in enumerate(zip(references, reference_labels, strict=True))
        if y == labels[i] and not (self_index and self_index[i] == j)
    ]
    negatives = [r for r, y in zip(references, reference_labels, strict=True) if y != labels[i]]
    return positives, negatives


def mean_of_non_zero(terms: list[Tensor], zero: Tensor) -> Tensor:
    hard = [t for t in terms if t > 0]
    return torch.stack(hard).mean() if hard else zero


def contrastive(
    embeddings: Tensor,
    labels: list[int],
    references: Tensor | None = None,
    reference_labels: list[int] | None = None,
    self_index: list[int] | None = None,
    *,
    positive_margin: float,
    negative_margin: float,
) -> Tensor:
    """Two margins. The mean of each side is over its positive terms."""
    references, reference_labels, self_index = memory_or_batch(
        embeddings, labels, references, reference_labels, self_index
    )
    zero = embeddings.sum() * 0 + references.sum() * 0
    positive_terms, negative_terms = [], []
    for i, anchor in enumerate(embeddings):
        positives, negatives = _sets(labels, references, reference_labels, self_index, i)
        positive_terms += [distance(anchor, p) - positive_margin for p in positives]
        negative_terms += [negative_margin - distance(anchor, n) for n in negatives]
    return mean_of_non_zero(positive_terms, zero) + mean_of_non_zero(negative_terms, zero)


def triplet(
    embeddings: Tensor,
    labels: list[int],
    references: Tensor | None = None,
    reference_labels: list[int] | None = None,
    self_index: list[int] | None = None,
    *,
    margin: float,
    mining: str,
) -> Tensor:
    """Every (anchor, positive, negative), or only those whose negative is farther than the positive."""
    references, reference_labels, self_index = memory_or_batch(
        embeddings, labels, references, reference_labels, self_index
    )
    zero = embeddings.sum() * 0 + references.sum() * 0
    terms = []
    for i, anchor in enumerate(embeddings):
        positives, negatives = _sets(labels, references, reference_labels, self_index, i)
        for p in positives:
            for n in negatives:
                to_positive, to_negative = distance(anchor, p), distance(anchor, n)
                if mining == "all" or to_negative > to_positive:
                    terms.append(to_positive - to_negative + margin)
    return mean_of_non_zero(terms, zero)


def tuples(query: Tensor, positive: Tensor, negatives: Tensor, *, margin: float, epsilon: float) -> Tensor:
    """T tuples of one query, one positive and N negatives: squared hinges, summed."""
    total = query.sum() * 0
    for q, p, group in zip(query, positive, negatives, strict=True):
        total = total + 0.5 * ((q - p + epsilon) ** 2).sum()
        for n in group:
            d = ((q - n + epsilon) ** 2).sum().sqrt()
            if d < margin:
                total = total + 0.5 * (margin - d) ** 2
    return total
