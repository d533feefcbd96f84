"""The weights of positions of a batch of images, and the functions that compute them for a recipe."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from unseen.methods.settings import Recipe
from unseen.runtime.parts import load


@dataclass(frozen=True)
class PositionWeights:
    """Weights of the P = `height` x `width` positions of a feature map, in row-major order.

    `detail`: they describe one prototype or one point, and not the whole embedding.
    """

    name: str
    weights: Float[Tensor, "B P"]
    height: int
    width: int
    detail: bool = False
    # of each position, the prototype that receives the largest part of its mass
    prototype: Int[Tensor, "B P"] | None = None
    # x and y of the position from which the weights are computed, as shares of width and height
    point: Float[Tensor, "B 2"] | None = None


# Arguments: the method in eval mode, normalised images (B, 3, H, W). The first weights describe the whole
# embedding.
Positions = Callable[[Any, Tensor], list[PositionWeights]]


def position_functions(recipe: Recipe) -> tuple[Positions, ...]:
    """The functions that the recipe and its pooling name with `positions`; empty: neither names one."""
    parts = (recipe, getattr(recipe, "pooling", None))
    names = [getattr(type(part), "positions", None) for part in parts]
    return tuple(load(name) for name in names if name is not None)
