"""Softmax losses over proxies and over a memory, written out sample by sample in float64."""

import torch
from torch import Tensor


def proxy_nca(embeddings: Tensor, labels: list[int], proxies: Tensor) -> Tensor:
    """As the paper and its code write it: squared distances of unit vectors scaled by 3."""
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
    """memory: vector and label of each training image that has been seen."""
    total = embeddings.sum() * 0
    for x, y, sample in zip(embeddings, labels, samples, strict=True):
        logits = {j: x @ vector / temperature for j, (vector, _) in memory.items() if j != sample}
        same = [logit for j, logit in logits.items() if memory[j][1] == y]
        if same:
            total = total + torch.stack(list(logits.values())).logsumexp(0) - torch.stack(same).logsumexp(0)
    return total / len(labels)


def snca_update(
    embeddings: list[Tensor],
    labels: list[int],
    samples: list[int],
    memory: dict[int, tuple[Tensor, int]],
    *,
    momentum: float,
) -> dict[int, tuple[Tensor, int]]:
    """The memory after a batch: an image that comes twice counts once, by its mean; an image that was not
    seen starts with its embedding."""
    after = dict(memory)
    for sample in set(samples):
        mine = [i for i, s in enumerate(samples) if s == sample]
        new = torch.stack([embeddings[i] for i in mine]).mean(0)
        mixed = momentum * memory[sample][0] + (1 - momentum) * new if sample in memory else new
        after[sample] = (mixed / mixed.norm(), labels[mine[-1]])
    return after
