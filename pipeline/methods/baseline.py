"""The baseline: one pooled vector, one linear layer, one loss, under the same protocol as the papers."""

from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.settings import BaselineRecipe


class Baseline(EmbeddingMethod):
    """z = v / ||v||,  v = W pool(features) + b.     loss = L(z), any loss; a pair loss may use a memory

    Poolings and losses give every baseline of the papers: MS, contrastive, triplet, XBM, ProxyNCA++,
    Proxy-Anchor, normalised softmax, SNCA.
    """

    def __init__(self, recipe: BaselineRecipe, classes: int, samples: int) -> None:
        super().__init__(recipe, classes, samples)
