"""Losses pair by pair in float64, differentiated by autograd."""

import math

import torch
from torch import Tensor


def memory_or_batch(
    embeddings: Tensor,
    labels: list[int],
    references: Tensor | None,
    reference_labels: list[int] | None,
    self_index: list[int] | None,
) -> tuple[Tensor, list[int], list[int] | None]:
    """References, their labels, and the position of each embedding among them: the batch without a memory."""
    if references is None or reference_labels is None:
        return embeddings, labels, list(range(len(labels)))
    return references, reference_labels, self_index


def multi_similarity(
    embeddings: Tensor,
    labels: list[int],
    references: Tensor | None = None,
    reference_labels: list[int] | None = None,
    self_index: list[int] | None = None,
    *,
    alpha: float,
    beta: float,
    threshold: float,
    mining_margin: float | None,
) -> Tensor:
    """The loop of the released code over anchors."""
    references, reference_labels, self_index = memory_or_batch(
        embeddings, labels, references, reference_labels, self_index
    )
    zero = embeddings.new_zeros(())
    total = embeddings.sum() * 0 + references.sum() * 0
    for i in range(len(labels)):
        positives, negatives = [], []
        for j in range(len(reference_labels)):
            s = embeddings[i] @ references[j]
            if reference_labels[j] != labels[i]:
                negatives.append(s)
            elif s < 1 - 1e-5 and (self_index is None or self_index[i] != j):
                positives.append(s)
        if mining_margin is not None:
            if not positives or not negatives:
                continue
            lowest, highest = min(positives), max(negatives)
            positives = [s for s in positives if s - mining_margin < highest]
            negatives = [s for s in negatives if s + mining_margin > lowest]
            if not positives or not negatives:
                continue
        total = (
            total + torch.stack([zero, *(-alpha * (s - threshold) for s in positives)]).logsumexp(0) / alpha
        )
        total = total + torch.stack([zero, *(beta * (s - threshold) for s in negatives)]).logsumexp(0) / beta
    return total / len(labels)


def contrastive(
    embeddings: Tensor,
    labels: list[int],
    references: Tensor | None = None,
    reference_labels: list[int] | None = None,
    self_index: list[int] | None = None,
    *,
    margin: float,
) -> Tensor:
    """IRT eq. (1)."""
    references, reference_labels, self_index = memory_or_batch(
        embeddings, labels, references, reference_labels, self_index
    )
    total = embeddings.sum() * 0 + references.sum() * 0
    for i in range(len(labels)):
        for j in range(len(reference_labels)):
            s = embeddings[i] @ references[j]
            if reference_labels[j] != labels[i]:
                total = total + (s - margin if s > margin else 0)
            elif self_index is None or self_index[i] != j:
                total = total + (1 - s)
    return total / len(labels)


def proxy_anchor(
    embeddings: Tensor, labels: list[int], proxies: Tensor, *, alpha: float, margin: float
) -> Tensor:
    """Both sums are over proxies; the second is divided by their total number."""
    zero = embeddings.new_zeros(())
    positive, negative, present = zero, zero, 0
    for c in range(len(proxies)):
        proxy = proxies[c] / (proxies[c] @ proxies[c] + 1e-12).sqrt()
        positive_terms = [
            -alpha * (x @ proxy - margin) for x, y in zip(embeddings, labels, strict=True) if y == c
        ]
        negative_terms = [
            alpha * (x @ proxy + margin) for x, y in zip(embeddings, labels, strict=True) if y != c
        ]
        present += bool(positive_terms)
        positive = positive + torch.stack([zero, *positive_terms]).logsumexp(0)
        negative = negative + torch.stack([zero, *negative_terms]).logsumexp(0)
    return positive / present + negative / len(proxies)


def koleo(embeddings: Tensor, epsilon: float) -> Tensor:
    """The nearest neighbour is that of the largest inner product. Epsilon is added to every component of the
    difference."""
    logs = []
    for i, z in enumerate(embeddings):
        nearest = max((j for j in range(len(embeddings)) if j != i), key=lambda j: (z @ embeddings[j]).item())
        logs.append(((z - embeddings[nearest] + epsilon) ** 2).sum().sqrt().log())
    return -torch.stack(logs).mean()


def prototype_diversity(prototypes: Tensor) -> Tensor:
    cosines = [
        (a @ b / (a.norm() * b.norm())).abs()
        for i, a in enumerate(prototypes)
        for j, b in enumerate(prototypes)
        if i != j
    ]
    return torch.stack(cosines).mean()


def similarity_consistency(a: Tensor, b: Tensor) -> Tensor:
    size = range(len(a))
    return torch.stack([(a[i] @ a[j] - b[i] @ b[j]).abs() for i in size for j in size]).mean()


def zero_shot(
    attributes: Tensor, labels: list[int], class_embeddings: Tensor, *, ridge: float, scale: float
) -> Tensor:
    """Each half of the classes predicts the other by the M x M form of ridge regression, Y Z^T (Z Z^T + ridge
    I)^-1."""
    order = list(dict.fromkeys(labels))
    first = set(order[: len(order) // 2])
    halves = [[i for i, y in enumerate(labels) if (y in first) == inside] for inside in (True, False)]
    total = attributes.sum() * 0 + class_embeddings.sum() * 0
    if not all(halves):
        return total
    for fitted, judged in (halves, halves[::-1]):
        z, y = attributes[fitted].T, class_embeddings[[labels[i] for i in fitted]].T
        regression = y @ z.T @ torch.linalg.inv(z @ z.T + ridge * torch.eye(len(z), dtype=z.dtype))
        for i in judged:
            logits = scale * class_embeddings @ (regression @ attributes[i])
            total = total + logits.logsumexp(0) - logits[labels[i]]
    return total / len(labels)


def duplicate_koleo(dim: int, epsilon: float) -> float:
    return -math.log(epsilon * math.sqrt(dim))
