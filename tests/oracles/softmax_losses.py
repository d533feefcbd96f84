"""Softmax losses over proxies and over a memory, sample by sample in float64."""

import math

import torch
from torch import Tensor


def proxy_nca(embeddings: Tensor, labels: list[int], proxies: Tensor) -> Tensor:
    """The form of the paper and its code: squared distances of unit vectors scaled by 3."""
    losses = []
    for x, y in zip(embeddings, labels, strict=True):
        logits = torch.stack([-(3 * x - 3 * p / p.norm()).square().sum() for p in proxies])
        losses.append(logits.logsumexp(0) - logits[y])
    return torch.stack(losses).mean()


def normalized_softmax(
    embeddings: Tensor, labels: list[int], proxies: Tensor, *, temperature: float
) -> Tensor:
    losses = []
    for x, y in zip(embeddings, labels, strict=True):
        logits = torch.stack([x @ p / p.norm() / temperature for p in proxies])
        losses.append(logits.logsumexp(0) - logits[y])
    return torch.stack(losses).mean()


def snca(
    embeddings: Tensor,
    labels: list[int],
    samples: list[int],
    memory: dict[int, tuple[Tensor, int]],
    *,
    temperature: float,
) -> Tensor:
    """memory: vector and label of each training image that has been in a batch."""
    total = embeddings.sum() * 0
    for x, y, sample in zip(embeddings, labels, samples, strict=True):
        logits = {j: x @ vector / temperature for j, (vector, _) in memory.items() if j != sample}
        same_class = [logit for j, logit in logits.items() if memory[j][1] == y]
        if same_class:
            total = (
                total + torch.stack(list(logits.values())).logsumexp(0) - torch.stack(same_class).logsumexp(0)
            )
    return total / len(labels)


def snca_update(
    embeddings: list[Tensor],
    labels: list[int],
    samples: list[int],
    memory: dict[int, tuple[Tensor, int]],
    *,
    momentum: float,
) -> dict[int, tuple[Tensor, int]]:
    """The memory after a batch: an image that occurs twice counts once, with its mean. A new image starts
    with its embedding."""
    updated = dict(memory)
    for sample in set(samples):
        positions = [i for i, s in enumerate(samples) if s == sample]
        mean_embedding = torch.stack([embeddings[i] for i in positions]).mean(0)
        mixed = (
            momentum * memory[sample][0] + (1 - momentum) * mean_embedding
            if sample in memory
            else mean_embedding
        )
        updated[sample] = (mixed / mixed.norm(), labels[positions[-1]])
    return updated


def margin_softmax(
    embeddings: Tensor, labels: list[int], proxies: Tensor, scale: float, margin: float, angle: bool
) -> Tensor:
    """CosFace eq. 4, or with `angle` ArcFace eq. 3 with the continuation of the authors' code beyond pi."""
    total = torch.zeros((), dtype=torch.float64)
    for z, label in zip(embeddings, labels, strict=True):
        cosines = [z @ p / p.norm() for p in proxies]
        target = cosines[label]
        if not angle:
            shifted = target - margin
        elif target.arccos() + margin <= math.pi:
            shifted = (target.arccos() + margin).cos()
        else:
            shifted = target - margin * math.sin(math.pi - margin)
        others = sum((scale * cosine).exp() for c, cosine in enumerate(cosines) if c != label)
        numerator = (scale * shifted).exp()
        total = total - (numerator / (numerator + others)).log()
    return total / len(labels)
