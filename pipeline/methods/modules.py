"""Builds the module of a part (a loss, a pooling, a network, a method) from its settings.

The settings name the class (`module`). It is imported only if a recipe uses it, so that the code of a run
contains only the parts of that run (pipeline/experiments/plan/code.py).
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn

from unseen.losses import settings as losses
from unseen.networks.backbone import Backbone
from unseen.networks.settings import Backbone as BackboneSettings
from unseen.poolings import settings as poolings
from unseen.runtime.settings import Strict


def load(name: str) -> Any:
    """The class `package.module:Class`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


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
    )


def pair_loss(settings: losses.PairLoss) -> nn.Module:
    """A loss of pairs of embeddings: forward(embeddings, labels[, references, reference_labels,
    self_index])."""
    return _built(settings)


def proxy_loss(settings: losses.ProxyLoss, classes: int, dim: int) -> nn.Module:
    """A loss of embeddings and learned proxies of the classes: forward(embeddings, labels)."""
    return _built(settings, classes, dim)


def map_pooling(settings: poolings.AnyMapPooling, source: Backbone, dim: int | None, size: int) -> nn.Module:
    """The pooling of the last map, (B, L, H, W) -> (B, E). E is `out_channels`. The pooling `projects` if it
    contains the transform to D, so that E = D = `dim`.

    size: side of the input image. Raises ValueError for a pooling that contains the transform if `dim` is
    None.
    """
    return channel_pooling(settings, source.channels[-1], dim, lambda: _positions(source, size))


def channel_pooling(
    settings: poolings.AnyMapPooling, channels: int, dim: int | None, positions: Callable[[], int]
) -> nn.Module:
    """The pooling of a map with L = `channels`, see `map_pooling`. `positions` returns H W, for GSoP."""
    match settings:
        case poolings.SecondOrderPooling():
            attention = load(settings.attention)(channels, settings.reduction)
            return load(settings.module)(channels, attention, settings.exponent)
        case poolings.GsopPooling():
            width = _required(dim, settings.name)
            return load(settings.module)(channels, width, positions(), settings.attention_dim)
    if getattr(settings, "projects", False):
        return _built(settings, channels, _required(dim, settings.name))
    return _built(settings, channels)


def attribute_pooling(settings: poolings.AttributePooling, channels: int, dim: int | None) -> nn.Module:
    """The pooling of (B, L, H, W) that returns a vector, attributes, and the average of the transformed map.

    Raises ValueError without `dim`, except for `gsp`.
    """
    return _built(settings, channels, dim if settings.name == "gsp" else _required(dim, settings.name))


def _built(settings: Any, *arguments: Any) -> nn.Module:
    """The module of a part, built with `arguments` and, by name, the fields of the settings."""
    assert isinstance(settings, Strict)
    fields = settings.model_dump(exclude={"name"})
    return load(settings.module)(*arguments, **fields)  # type: ignore[attr-defined]


def _required(dim: int | None, name: str) -> int:
    if dim is None:
        raise ValueError(f"pooling `{name}` contains the transform to the embedding: set `dim`.")
    return dim


@torch.no_grad()
def _positions(source: Backbone, size: int) -> int:
    """The number of positions of the last map for images of that size, from a forward pass."""
    was_training = source.training
    source.eval()
    last = source(torch.zeros(1, 3, size, size)).maps[-1]
    source.train(was_training)
    return last.shape[-2] * last.shape[-1]
