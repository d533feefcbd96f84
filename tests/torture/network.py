"""The smallest network that every stage accepts: one convolution with batch normalisation.

A stage writes a checkpoint by one file operation per tensor. With this network the campaign of file
operations repeats few equal ones.
"""

from typing import Any

import torch
from torch import nn

from unseen.networks.torchvision_guard import ensure_torchvision

ensure_torchvision()

from timm.models import register_model  # noqa: E402  after the guard

NAME = "one_convolution"
CHANNELS = 8


class OneConvolution(nn.Module):
    """The methods and attributes of a network of timm that the project uses."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, CHANNELS, 8, stride=8, bias=False)
        self.normalisation = nn.BatchNorm2d(CHANNELS)
        self.num_features = CHANNELS
        self.feature_info = [{"num_chs": CHANNELS, "reduction": 8, "module": "normalisation"}]
        self.default_cfg: dict[str, Any] = {}

    def prune_intermediate_layers(self, indices: list[int], **_: Any) -> list[int]:
        return indices

    def forward_intermediates(
        self, images: torch.Tensor, **_: Any
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        maps = self.normalisation(self.convolution(images))
        maps = nn.functional.dropout(maps, 0.1, self.training)  # a step depends on the seed of its numbers
        return maps, [maps]

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return {"stem": "^convolution", "blocks": "^normalisation"}


@register_model
def one_convolution(pretrained: bool = False, **_: Any) -> OneConvolution:
    """timm builds the network by this name in a process that imported this module."""
    return OneConvolution()
