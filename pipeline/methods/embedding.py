"""The base of baseline, GSP and IRT: a backbone, a pooling head, one metric loss, and a momentum encoder if
the memory has a momentum."""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.methods import modules
from unseen.methods.head import PoolingHead
from unseen.methods.method import Method, Observed, Outputs, unit
from unseen.methods.metric_loss import MetricLoss
from unseen.methods.momentum import MomentumEncoder
from unseen.methods.settings import BaselineRecipe, GspRecipe, IrtRecipe, OutsideRecipe, Projection


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
