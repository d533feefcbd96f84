"""Generalized Sum Pooling for metric learning (Gurbuz et al., ICCV 2023)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unseen.methods import modules
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.method import Observed, Outputs
from unseen.methods.settings import GspRecipe


class Gsp(EmbeddingMethod):
    """A 1 x 1 projection without bias, the sum of the features that transport selects, z = pooled /
    ||pooled|| (sec. 4.1).

    loss = (1 - w) L_DML(z) + w L_ZS(attributes)      eq. 4.4 and sec. 4.2

    Costs, prototypes and pooling use projected features, as in the released code. L_DML can be any loss; the
    paper uses C2, MS, triplet, XBM, ProxyNCA++ and Proxy-Anchor. Until the prototypes are selected, pooling
    is the average, and L_ZS of attributes that are all zero is ln C without gradient, as in the released
    code.
    """

    def __init__(self, recipe: GspRecipe, classes: int, samples: int) -> None:
        super().__init__(recipe, classes, samples)
        zero_shot = recipe.zero_shot
        self.zero_shot_weight = zero_shot.weight if zero_shot is not None else 0.0
        self.zero_shot: nn.Module | None = None
        if zero_shot is not None:
            self.zero_shot = modules.loss(zero_shot, classes=classes, attributes=recipe.pooling.prototypes)

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        weight = 1 - self.zero_shot_weight
        metric_terms = super().terms(outputs, labels, samples, observed)
        terms = {name: weight * term for name, term in metric_terms.items()}
        if self.zero_shot is not None:
            assert outputs.attributes is not None
            assert observed.has_prototypes is not None
            terms["zero_shot"] = self.zero_shot_weight * self.zero_shot(
                torch.where(observed.has_prototypes, outputs.attributes, 0.0), labels
            )
        return terms
