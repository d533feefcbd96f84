"""The networks that timm does not have, by the name that a recipe gives them. Each is imported when it is built."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class OwnNetwork:
    """Class `name` of module `pipeline.models.<module>`, with the arguments that its name stands for."""

    module: str
    name: str
    arguments: tuple[Any, ...] = ()

    def build(self, options: dict[str, Any]) -> Any:
        """The network with `options`, the `backbone.arguments` of a recipe."""
        return getattr(import_module(self.module), self.name)(*self.arguments, **options)


OWN = {
    "googlenet": OwnNetwork("pipeline.models.googlenet", "GoogLeNet"),
    "bn_inception": OwnNetwork("pipeline.models.bn_inception", "BnInception"),
    "mit_b1": OwnNetwork("pipeline.models.mix_transformer", "MixTransformer", ("b1",)),
    "mit_b2": OwnNetwork("pipeline.models.mix_transformer", "MixTransformer", ("b2",)),
    "resnet20_preact": OwnNetwork("pipeline.models.resnet20", "PreactivationResNet20"),
    "token_embedding": OwnNetwork("pipeline.models.token_embedding", "TokenEmbedding"),
}
