"""Losses and poolings by name, with the published defaults of a recipe, for code without recipes.

    loss("multi_similarity")                        pair loss:   forward(embeddings, labels)
    loss("proxy_anchor", classes=100, dim=512)      proxy loss:  forward(embeddings, labels), proxies train
    pooling("gem", channels=2048)                   (B, L, H, W) -> (B, L)
    pooling("gsp", channels=2048, dim=512)          (B, L, H, W) -> vector (B, D), attributes, average

The defaults are those of the settings classes (pipeline/losses/settings.py, poolings.py), which
docs/library.md lists. SNCA, the tuple loss and the hybrid loss need the state of a training
(pipeline/methods/metric_loss.py).
"""

from typing import Any, TypeVar, get_args

from pydantic import ValidationError
from torch import nn

from unseen.losses import settings as losses
from unseen.methods import modules
from unseen.poolings import settings as poolings
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

Settings = TypeVar("Settings", bound=Strict)


def _by_name(union: Any) -> dict[str, Any]:
    return {settings.model_fields["name"].default: settings for settings in get_args(union)}


PAIR_LOSSES, PROXY_LOSSES = _by_name(losses.AnyPairLoss), _by_name(losses.AnyProxyLoss)
MAP_POOLINGS, ATTRIBUTE_POOLINGS = _by_name(poolings.AnyMapPooling), _by_name(poolings.AnyAttributePooling)


def loss(name: str, classes: int | None = None, dim: int | None = None, **settings: Any) -> nn.Module:
    """The loss `name` of docs/library.md on unit vectors (B, D) and labels (B,).

    A proxy loss needs the number of classes and D. `settings` replace published defaults. Raises UserError
    for an unknown name or setting, and if `classes` or `dim` is missing.
    """
    chosen = _settings("loss", _class_of("loss", name, PAIR_LOSSES | PROXY_LOSSES), name, settings)
    if name in PAIR_LOSSES:
        return modules.loss(chosen)
    if classes is None or dim is None:
        missing = "classes" if classes is None else "dim"
        raise UserError(f"Loss {name} has a vector for each class: `{missing}` is missing.", _COUNTS)
    return modules.loss(chosen, classes=classes, dim=dim)


def pooling(
    name: str, channels: int, dim: int | None = None, positions: int | None = None, **settings: Any
) -> nn.Module:
    """The pooling `name` of docs/library.md for maps (B, L, H, W) with L = `channels`.

    dim: D of a pooling that contains the transform to the embedding. positions: H W, for `gsop`. `settings`
    replace published defaults. Raises UserError for an unknown name or setting, and if `dim` or `positions`
    is missing.
    """
    known = MAP_POOLINGS | ATTRIBUTE_POOLINGS
    chosen = _settings("pooling", _class_of("pooling", name, known), name, settings)

    def required_positions() -> int:
        if positions is None:
            raise ValueError(f"pooling `{name}` depends on the size of the map: set `positions`.")
        return positions

    try:
        return modules.pooling(chosen, channels, dim, required_positions)
    except ValueError as error:
        raise UserError(f"{error}", f"See pooling {name} in docs/library.md.") from error


_COUNTS = 'E.g. loss("proxy_anchor", classes=100, dim=512).'


def _class_of(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise UserError(f"There is no {kind} {name!r}.", f"Use one of {', '.join(known)}.")
    return known[name]


def _settings(kind: str, settings: type[Settings], name: str, changes: dict[str, Any]) -> Settings:
    """The settings with these changes. Raises UserError for an unknown one or a wrong value."""
    try:
        return settings.parse({"name": name, **changes})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        names = ", ".join(field for field in settings.model_fields if field != "name") or "none"
        raise UserError(
            f"The setting {field} of {kind} {name} is wrong: {first['msg']}, got {first['input']!r}.",
            f"Its settings: {names}.",
        ) from None
