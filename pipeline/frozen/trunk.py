"""A backbone that reads the cached maps of a frozen network.

The maps of an image, and its class token if the network has one, are one row of V values: the maps in the
order of the stages, each (L, H, W), then the class token. V is the sum of their sizes.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unseen.networks.backbone import Backbone, Features


class Layout(NamedTuple):
    """Stages and shapes of the maps of one image, and channels of the class token; None: the network has
    none."""

    stages: tuple[int, ...]  # as Backbone.stages
    maps: tuple[tuple[int, int, int], ...]  # (L, H, W) of each stage
    cls_channels: int | None

    @property
    def width(self) -> int:
        """V, the number of values of an image."""
        return sum(channels * height * width for channels, height, width in self.maps) + (
            self.cls_channels or 0
        )

    @staticmethod
    def of(stages: tuple[int, ...], features: Features) -> "Layout":
        """The layout of the output of a backbone with these stages."""
        shapes = [(each.shape[1], each.shape[2], each.shape[3]) for each in features.maps]
        return Layout(stages, tuple(shapes), None if features.cls is None else features.cls.shape[1])

    @staticmethod
    def of_vectors(dim: int) -> "Layout":
        """The layout of one vector per image."""
        return Layout((), (), dim)

    @staticmethod
    def from_plain(value: dict[str, Any]) -> "Layout":
        """The layout from JSON values."""
        shapes = tuple((int(channels), int(height), int(width)) for channels, height, width in value["maps"])
        return Layout(tuple(value["stages"]), shapes, value["cls_channels"])


def packed(features: Features) -> Float[Tensor, "B V"]:
    """Maps and class tokens of images as rows."""
    parts = [each.flatten(1) for each in features.maps]
    return torch.cat([*parts, *([] if features.cls is None else [features.cls])], dim=1)


class CachedBackbone(Backbone):
    """Rows of cached values -> the features of the frozen network. It has no parameters."""

    def __init__(self, layout: Layout, stages: tuple[int, ...]) -> None:
        """stages: of the maps that the method reads, in its order. Raises ValueError for one that the layout
        lacks."""
        nn.Module.__init__(self)
        missing = [stage for stage in stages if stage not in layout.stages]
        if missing:
            raise ValueError(f"the cached maps have the stages {list(layout.stages)}, not {missing[0]}")
        self.layout, self.stages = layout, stages
        self._places = tuple(layout.stages.index(stage) for stage in stages)
        self.channels = tuple(layout.maps[place][0] for place in self._places)
        self.cls_channels, self.input_size = layout.cls_channels, None
        self._frozen = False

    def forward(self, images: Float[Tensor, "B V"]) -> Features:
        """Raises ValueError for rows of another layout."""
        if images.shape[1] != self.layout.width:
            raise ValueError(
                f"the cached maps of an image have {self.layout.width} values, got {images.shape[1]}"
            )
        sizes = [channels * height * width for channels, height, width in self.layout.maps]
        parts = images.split([*sizes, *([self.cls_channels] if self.cls_channels else [])], dim=1)
        return Features(
            tuple(parts[index].unflatten(1, self.layout.maps[index]) for index in self._places),
            parts[-1] if self.cls_channels else None,
        )

    def layers(self) -> list[list[nn.Parameter]]:
        return []
