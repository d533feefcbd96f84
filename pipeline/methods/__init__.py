"""The methods, one file per paper, in the order of its section 3. A recipe becomes a module that embeds
images and computes its loss."""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.methods.embedding import EmbeddingMethod
    from unseen.methods.head import PoolingHead
    from unseen.methods.method import Method, Observed, Outputs, unit
    from unseen.methods.metric_loss import MetricLoss
    from unseen.methods.modules import backbone
    from unseen.methods.settings import OutsideRecipe, Recipe
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "EmbeddingMethod",
    "Method",
    "MetricLoss",
    "Observed",
    "Outputs",
    "OutsideRecipe",
    "PoolingHead",
    "Recipe",
    "backbone",
    "unit",
]
