"""Builds the module of a part (a loss, a pooling, a network, a method) from its settings.

The settings name the class (`module`). It is imported only if a recipe uses it, so that the code of a run
contains only the parts of that run (pipeline/runtime/code.py).
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from unseen.networks.backbone import Backbone
from unseen.networks.settings import Backbone as BackboneSettings
from unseen.poolings.settings import PoolingSettings, SecondOrderPooling
from unseen.runtime.parts import load, made
from unseen.runtime.settings import Strict


def backbone(settings: BackboneSettings) -> Backbone:
    """Raises ValueError or FileNotFoundError, as Backbone does."""
    return Backbone(
        settings.name,
        settings.pretrained,
        settings.checkpoint,
        dict(settings.arguments),
        settings.stages,
        settings.batch_norm,
        settings.batch_norm_momentum,
        module=settings.module,
    )


def loss(settings: Strict, **sizes: int | None) -> nn.Module:
    """A loss or a term beside it. sizes: `classes`, `dim`, `samples` (training images) and `attributes`, for
    a class that names them."""
    built: nn.Module = made(settings, sizes)
    return built


def map_pooling(settings: PoolingSettings, source: Backbone, dim: int | None, size: int) -> nn.Module:
    """The pooling of the last map of a network. size: side of the input image. Raises ValueError as
    `pooling` does."""
    return pooling(settings, source.channels[-1], dim, lambda: _positions(source, size))


def pooling(
    settings: PoolingSettings, channels: int, dim: int | None, positions: Callable[[], int]
) -> nn.Module:
    """The pooling of a map with L = `channels`, (B, L, H, W) -> (B, E). E is `out_channels`. A pooling that
    `projects` contains the transform to D, so that E = D = `dim`. One with `attributes` returns a vector,
    attributes, and the average of the transformed map. `positions` returns H W, for GSoP.

    Raises ValueError if a pooling that projects has no `dim`, except for `gsp`.
    """
    if isinstance(settings, SecondOrderPooling):
        attention = load(settings.attention)(channels, settings.reduction)
        return load(settings.module)(channels, attention, settings.exponent)
    if dim is None and settings.projects and not settings.dim_is_optional:
        name = settings.name  # type: ignore[attr-defined]
        raise ValueError(f"pooling `{name}` contains the transform to the embedding: set `dim`.")
    given: dict[str, Any] = {"channels": channels, "dim": dim}
    if "positions" in inspect.signature(load(settings.module)).parameters:  # type: ignore[attr-defined]
        given["positions"] = positions()
    built: nn.Module = made(settings, given)
    return built


@torch.no_grad()
def _positions(source: Backbone, size: int) -> int:
    """The number of positions of the last map for images of that size, from a forward pass."""
    was_training = source.training
    source.eval()
    last = source(torch.zeros(1, 3, size, size)).maps[-1]
    source.train(was_training)
    return last.shape[-2] * last.shape[-1]
