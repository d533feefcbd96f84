"""What the networks that timm does not have share: a chain of named blocks, cut into stages, each of which gives one feature map.

They answer to the methods of timm's networks that `Backbone` calls, so that it need not know whose network it holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn


@dataclass(frozen=True)
class Published:
    """Pretrained weights: the file that holds them, the page that has it, and how a library fetches their state dict, where one offers that."""

    file: str
    page: str
    fetch: Callable[[], dict[str, Any]] | None = None


class Staged(nn.Module):
    """A chain of blocks. `plan` names the blocks of each stage in order, `channels` the channels of each stage's map.

    A block is the submodule of that name, unless a network says otherwise in `block`. Its parameters are those whose names start with its own.
    """

    plan: tuple[tuple[str, ...], ...]
    channels: tuple[int, ...]
    default_cfg: dict[str, Any]  # timm's word: `classifier` names the modules of a checkpoint that a backbone leaves out
    published: Published | None = None

    @property
    def feature_info(self) -> list[dict[str, int]]:
        return [{"num_chs": channels} for channels in self.channels]

    def prepare(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 3 H W"]:
        """The network's own convention for its input."""
        return images

    def block(self, name: str, x: Float[Tensor, "B L H W"]) -> Float[Tensor, "B M h w"]:
        return self.get_submodule(name)(x)

    def forward_intermediates(self, images: Float[Tensor, "B 3 H W"], indices: Sequence[int], norm: bool = True) -> tuple[Tensor, list[Tensor]]:
        """The last map and the maps of the stages `indices`. `norm` is there for timm's sake: a final norm is a block like any other."""
        x, maps = self.prepare(images), []
        for stage, blocks in enumerate(self.plan):
            for name in blocks:
                x = self.block(name, x)
            if stage in indices:
                maps.append(x)
        return x, maps

    def prune_intermediate_layers(self, indices: Sequence[int], prune_norm: bool = False, prune_head: bool = True) -> None:
        """Removes the blocks behind the last stage of `indices`."""
        last = max(indices) + 1
        for name in (name for blocks in self.plan[last:] for name in blocks):
            for path, _ in list(self.named_modules()):
                if path.startswith(name) and path.count(".") == name.count("."):
                    parent, _, child = path.rpartition(".")
                    delattr(self.get_submodule(parent), child)
        self.plan, self.channels = self.plan[:last], self.channels[:last]

    def group_matcher(self, coarse: bool = False) -> Callable[[str], Any]:
        """Which layer a parameter belongs to, counted from the stem: the index of its block."""
        blocks = [name for stage in self.plan for name in stage]
        return lambda parameter: next(index for index, name in enumerate(blocks) if parameter.startswith(name))
