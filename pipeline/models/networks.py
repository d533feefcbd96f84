"""The networks that timm lacks, by their name in a recipe.

Each module is imported when its network is built.
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class ProjectNetwork:
    """Class `name` of `module`, with the arguments that belong to the name of the network."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()

    def build(self, options: dict[str, Any]) -> Any:
        """The network with `options`, the `backbone.arguments` of a recipe."""
        return getattr(import_module(self.module), self.name)(*self.arguments, **options)


PROJECT_NETWORKS = {
    "googlenet": ProjectNetwork("pipeline.models.googlenet", "GoogLeNet"),
    "bn_inception": ProjectNetwork("pipeline.models.bn_inception", "BnInception"),
    "mit_b1": ProjectNetwork("pipeline.models.mix_transformer", "MixTransformer", ("b1",)),
    "mit_b2": ProjectNetwork("pipeline.models.mix_transformer", "MixTransformer", ("b2",)),
    "resnet20_preact": ProjectNetwork("pipeline.models.resnet20", "PreactivationResNet20"),
    "token_embedding": ProjectNetwork("pipeline.models.token_embedding", "TokenEmbedding"),
}
