"""Losses on Euclidean distances, written out pair by pair and triplet by triplet in float64."""

import torch
from torch import Tensor


def distance(a: Tensor, b: Tensor) -> Tensor:
    """|| a - b ||, whose gradient at 0 is chosen to be 0."""
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
    """Two margins; each side averaged over its own terms above zero."""
    if references is None or reference_labels is None:
        references, reference_labels, self_index = embeddings, labels, list(range(len(labels)))
    zero = embeddings.sum() * 0 + references.sum() * 0
    near, far = [], []
    for i, anchor in enumerate(embeddings):
        positives, negatives = _sets(labels, references, reference_labels, self_index, i)
        near += [distance(anchor, p) - positive_margin for p in positives]
        far += [negative_margin - distance(anchor, n) for n in negatives]
    return mean_of_non_zero(near, zero) + mean_of_non_zero(far, zero)


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
    """Every (anchor, positive, negative), or those whose negative is beyond the positive."""
    if references is None or reference_labels is None:
        references, reference_labels, self_index = embeddings, labels, list(range(len(labels)))
    zero = embeddings.sum() * 0 + references.sum() * 0
    terms = []
    for i, anchor in enumerate(embeddings):
        positives, negatives = _sets(labels, references, reference_labels, self_index, i)
        for p in positives:
            for n in negatives:
                near, far = distance(anchor, p), distance(anchor, n)
                if mining == "all" or far > near:
                    terms.append(near - far + margin)
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
