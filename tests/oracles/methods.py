"""The complete loss of each method in float64, from the outputs of a batch to the named terms, composed of
the slow definitions of its parts."""

import torch
from torch import Tensor

from tests.oracles import losses
from unseen.losses.settings import ContrastiveLoss, MultiSimilarityLoss
from unseen.methods.settings import BaselineRecipe, CrtRecipe, GspRecipe, IrtRecipe, MultiheadRecipe


def pair_loss(
    settings: MultiSimilarityLoss | ContrastiveLoss,
    embeddings: Tensor,
    labels: list[int],
    *references: object,
) -> Tensor:
    if isinstance(settings, ContrastiveLoss):
        return losses.contrastive(embeddings, labels, *references, margin=settings.margin)
    constants = {
        "alpha": settings.alpha,
        "beta": settings.beta,
        "threshold": settings.threshold,
        "mining_margin": settings.mining_margin,
    }
    return losses.multi_similarity(embeddings, labels, *references, **constants)


class Memory:
    """The latest `size` samples, oldest first."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: list[tuple[Tensor, int]] = []

    def references(self, embeddings: Tensor, labels: list[int]) -> tuple[Tensor, list[int], list[int]]:
        """The references of a batch after it is stored: embeddings, labels, and the positions of the images
        of the batch."""
        self.rows = [*self.rows, *zip(embeddings.detach(), labels, strict=True)][-self.size :]
        batch_positions = list(range(len(self.rows) - len(labels), len(self.rows)))
        return torch.stack([row for row, _ in self.rows]), [label for _, label in self.rows], batch_positions


def baseline(
    recipe: BaselineRecipe, embeddings: Tensor, labels: list[int], memory: Memory | None
) -> dict[str, Tensor]:
    terms = {recipe.loss.name: pair_loss(recipe.loss, embeddings, labels)}
    if memory is not None and recipe.memory is not None:
        terms["memory"] = recipe.memory.weight * pair_loss(
            recipe.loss, embeddings, labels, *memory.references(embeddings, labels)
        )
    return terms


def crt(
    recipe: CrtRecipe, first: Tensor, second: Tensor, prototypes: tuple[Tensor, ...], labels: list[int]
) -> dict[str, Tensor]:
    name = recipe.loss.name
    terms = {
        name: recipe.embedding.loss_weight * pair_loss(recipe.loss, first, labels),
        f"{name}_auxiliary": recipe.auxiliary.loss_weight * pair_loss(recipe.loss, second, labels),
        "consistency": recipe.consistency_weight * losses.similarity_consistency(first, second),
    }
    if prototypes:
        terms["diversity"] = recipe.diversity_weight * sum(
            losses.prototype_diversity(head_prototypes)
            for head_prototypes in prototypes
            if len(head_prototypes) > 1
        )
    return terms


def multihead(
    recipe: MultiheadRecipe, embeddings: Tensor, proxies: Tensor, labels: list[int]
) -> dict[str, Tensor]:
    pair, proxy = recipe.loss.pair, recipe.loss.proxy
    of_proxies = losses.proxy_anchor(embeddings, labels, proxies, alpha=proxy.alpha, margin=proxy.margin)
    return {
        pair.name: pair_loss(pair, embeddings, labels),
        "proxy_anchor": recipe.loss.proxy_weight * of_proxies,
    }


def gsp(
    recipe: GspRecipe,
    embeddings: Tensor,
    attributes: Tensor,
    classes: Tensor | None,
    labels: list[int],
    memory: Memory | None,
    has_prototypes: bool,
) -> dict[str, Tensor]:
    weight = 0.0 if recipe.zero_shot is None else recipe.zero_shot.weight
    terms = {recipe.loss.name: (1 - weight) * pair_loss(recipe.loss, embeddings, labels)}
    if memory is not None and recipe.memory is not None:
        references = memory.references(embeddings, labels)
        terms["memory"] = (
            (1 - weight) * recipe.memory.weight * pair_loss(recipe.loss, embeddings, labels, *references)
        )
    if recipe.zero_shot is not None and classes is not None:
        known = attributes if has_prototypes else torch.zeros_like(attributes)
        terms["zero_shot"] = weight * losses.zero_shot(
            known, labels, classes, ridge=recipe.zero_shot.ridge, scale=recipe.zero_shot.scale
        )
    return terms


def irt(recipe: IrtRecipe, embeddings: Tensor, labels: list[int], memory: Memory | None) -> dict[str, Tensor]:
    references = () if memory is None else memory.references(embeddings, labels)
    return {
        "contrastive": pair_loss(recipe.loss, embeddings, labels, *references),
        "koleo": recipe.koleo_weight * losses.koleo(embeddings, 1e-6),
    }
