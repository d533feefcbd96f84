"""The base of baseline, GSP and IRT: a backbone, a pooling head, one metric loss, and a momentum encoder if
the memory has a momentum."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.methods import modules
from unseen.methods.head import PoolingHead
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.methods.metric_loss import MetricLoss
from unseen.methods.settings import BaselineRecipe, GspRecipe, IrtRecipe, OutsideRecipe, Projection
from unseen.networks.backbone import Backbone


class MomentumEncoder(nn.Module):
    """A second network whose weights are a moving average of the trained ones: theta' <- m theta' + (1 - m)
    theta after each step (He et al. 2020; IRT on In-Shop). It embeds images without gradient, and the memory
    stores these embeddings, which change slowly from step to step.

    It runs in eval mode, so that an embedding depends only on the image, for any number of workers. Its
    buffers (running statistics, the state of a pooling) are copies of those of the trained network.
    """

    training_only = True  # embeddings do not depend on it, so a saved model does not contain it

    def __init__(self, backbone: Backbone, head: PoolingHead, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.backbone, self.head = copy.deepcopy(backbone), copy.deepcopy(head)
        self.requires_grad_(False).train()

    def train(self, mode: bool = True) -> "MomentumEncoder":
        super().train(False)
        return self

    @torch.no_grad()
    def forward(self, images: Float[Tensor, "B ..."]) -> Float[Tensor, "B D"]:
        return unit(self.head(self.backbone(images)).vector)

    @torch.no_grad()
    def update(self, backbone: Backbone, head: PoolingHead) -> None:
        """Updates the average with the weights of the trained network, and copies its buffers."""
        for averaged, trained in ((self.backbone, backbone), (self.head, head)):
            for average, weight in zip(averaged.parameters(), trained.parameters(), strict=True):
                average.lerp_(weight, 1 - self.momentum)
            for buffer, current in zip(averaged.buffers(), trained.buffers(), strict=True):
                buffer.copy_(current)


@dataclass(frozen=True)
class EmbeddingOutputs(Outputs):
    # average-pooled features from which prototypes are selected; only in training mode
    average: Float[Tensor, "B L"] | None
    key: Float[Tensor, "B D"] | None  # embedding by the momentum encoder; only in training mode


class EmbeddingMethod(Method):
    """z = head(features) / ||.||, and the terms of the recipe's loss for z."""

    def __init__(
        self, recipe: BaselineRecipe | GspRecipe | IrtRecipe | OutsideRecipe, classes: int, samples: int
    ) -> None:
        super().__init__()
        projection = Projection() if isinstance(recipe, GspRecipe) else recipe.projection
        self.backbone = modules.backbone(recipe.backbone)
        self.head = PoolingHead(recipe.pooling, self.backbone, recipe.dim, projection, recipe.input.size)
        self.dim = self.head.dim
        self.loss = MetricLoss(recipe.loss, recipe.memory, self.dim, recipe.batch.size, classes, samples)
        momentum = recipe.memory.momentum if recipe.memory is not None else None
        self.momentum = MomentumEncoder(self.backbone, self.head, momentum) if momentum is not None else None

    def forward(self, images: Float[Tensor, "B ..."]) -> EmbeddingOutputs:
        pooled = self.head(self.backbone(images))
        average = pooled.average if self.training else None
        key = self.momentum(images) if self.momentum is not None and self.training else None
        return EmbeddingOutputs(unit(pooled.vector), average, key, attributes=pooled.attributes)

    def observe(self, outputs: Outputs, labels: Int[Tensor, "B"]) -> Observed:
        assert isinstance(outputs, EmbeddingOutputs)
        # Of this batch: the head can then select the prototypes from it.
        has_prototypes = self.head.has_prototypes() if self.head.with_attributes else None
        references = self.loss.observe(outputs.embedding, labels, outputs.key)
        if self.training and outputs.average is not None:
            self.head.observe(outputs.average)
        return Observed(references, has_prototypes)

    def selects_prototypes(self) -> bool:
        return self.training and self.head.selects_prototypes()

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        """The terms of the metric loss."""
        terms: dict[str, Tensor] = self.loss(outputs.embedding, labels, samples, observed.references)
        return terms

    def after_step(self) -> None:
        if self.momentum is not None:
            self.momentum.update(self.backbone, self.head)

    def proxies(self) -> Sequence[nn.Parameter]:
        return self.loss.proxies()
