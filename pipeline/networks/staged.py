"""Base class of the networks that timm lacks: a chain of named blocks in stages with one feature map each.

It has the methods of timm's networks that `Backbone` calls, so that `Backbone` treats all networks alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Published:
    """Pretrained weights: file name, page, and a function that fetches the state dict, if any."""

    file: str
    page: str
    fetch: Callable[[], dict[str, Any]] | None = None


class Staged(nn.Module):
    """A chain of blocks. `plan`: names of the blocks of each stage. `channels`: of the map of each stage.

    A block is the submodule of that name, unless a network overrides `block`. Its parameters are those whose
    names start with its name.
    """

    plan: tuple[tuple[str, ...], ...]
    channels: tuple[int, ...]
    default_cfg: dict[str, Any]  # as in timm; `classifier`: modules of a checkpoint that a backbone omits
    published: Published | None = None

    @property
    def feature_info(self) -> list[dict[str, int]]:
        return [{"num_chs": channels} for channels in self.channels]

    def prepare(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
        """Converts RGB images to the input convention of the network."""
        return images

    def block(self, name: str, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B M h w"]:
        return self.get_submodule(name)(x)

    def forward_intermediates(
        self, images: Float[Tensor, "B 3 H W"], indices: Sequence[int], norm: bool = True
    ) -> tuple[Tensor, list[Tensor]]:
        """The last map and the maps of the stages `indices`.

        `norm` has no effect: it is an argument of timm's networks, and here a final norm is a block.
        """
        x, maps = self.prepare(images), []
        for stage, blocks in enumerate(self.plan):
            for name in blocks:
                x = self.block(name, x)
            if stage in indices:
                maps.append(x)
        return x, maps

    def prune_intermediate_layers(
        self, indices: Sequence[int], prune_norm: bool = False, prune_head: bool = True
    ) -> None:
        """Removes the blocks after the last stage of `indices`."""
        last = max(indices) + 1
        for name in (name for blocks in self.plan[last:] for name in blocks):
            for path, _ in list(self.named_modules()):
                if path.startswith(name) and path.count(".") == name.count("."):
                    parent, _, child = path.rpartition(".")
                    delattr(self.get_submodule(parent), child)
        self.plan, self.channels = self.plan[:last], self.channels[:last]

    def group_matcher(self, coarse: bool = False) -> Callable[[str], Any]:
        """A function from the name of a parameter to its layer: the index of its block."""
        blocks = [name for stage in self.plan for name in stage]

        def layer(parameter: str) -> int:
            return next(index for index, name in enumerate(blocks) if parameter.startswith(name))

        return layer
