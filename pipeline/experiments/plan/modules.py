"""The modules that a recipe names."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from unseen.methods.settings import Recipe
from unseen.networks.networks import PROJECT_NETWORKS


def modules_of(recipe: Recipe) -> list[str]:
    """Method, loss, pooling, memory and network."""
    modules = set(_named(recipe, ("module", "attention")))
    if recipe.backbone.name in PROJECT_NETWORKS:
        modules.add(PROJECT_NETWORKS[recipe.backbone.name].module)
    return sorted(modules)


def position_modules_of(recipe: Recipe) -> list[str]:
    """The weights of positions. Training does not depend on them."""
    return sorted(set(_named(recipe, ("positions",))))


def _named(value: Any, attributes: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, BaseModel):
        for name in attributes:
            path = getattr(value, name, None)  # of a class, or a field of a part from outside
            if isinstance(path, str) and ":" in path:
                yield path.partition(":")[0]
        for name in type(value).model_fields:
            yield from _named(getattr(value, name), attributes)
