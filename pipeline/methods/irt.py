"""Image Retrieval Transformer (El-Nouby et al.): the class token of a vision transformer, contrastive loss,
entropy regularisation."""

from jaxtyping import Float, Int
from torch import Tensor

from unseen.losses.koleo import koleo
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.method import Observed, Outputs
from unseen.methods.settings import IrtRecipe


class Irt(EmbeddingMethod):
    """z = CLS / ||CLS||, after the final layer norm, without a projection.

    loss = L_contr + lambda L_KoLeo

    L_contr (eq. 1) compares the batch with the memory, which already contains the batch. Without a memory,
    and before the memory starts, it compares the batch with itself. It is not the sum of both: the memory is
    the second set of eq. 1. KoLeo (eq. 5) is computed on the batch only; lambda = 0 is IRT_L.
    """

    def __init__(self, recipe: IrtRecipe, classes: int, samples: int) -> None:
        super().__init__(recipe, classes, samples)
        self.koleo_weight = recipe.koleo_weight

    def terms(
        self, outputs: Outputs, labels: Int[Tensor, "B"], samples: Int[Tensor, "B"], observed: Observed
    ) -> dict[str, Float[Tensor, ""]]:
        terms = super().terms(outputs, labels, samples, observed)
        if self.koleo_weight > 0:
            terms["koleo"] = self.koleo_weight * koleo(outputs.embedding)
        return terms
