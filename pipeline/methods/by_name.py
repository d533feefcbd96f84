"""Losses, poolings and heads by name, with the published defaults of a recipe, for code without recipes.

    loss("multi_similarity")                        forward(embeddings, labels)
    loss("proxy_anchor", classes=100, dim=512)      forward(embeddings, labels), proxies train
    loss("hybrid", classes=100, dim=512)            a pair and a proxy loss
    loss("memory", dim=512, size=8192)              a pair loss and a cross-batch memory
    loss("koleo")                                   forward(embeddings)
    pooling("gem", channels=2048)                   (B, L, H, W) -> (B, L)
    pooling("gsp", channels=2048, dim=512)          (B, L, H, W) -> vector (B, D), attributes, average
    head("crt", channels=512)                       (B, L, H, W) -> (B, D), (B, E)
    head("multihead", channels=(1024, 2048))        two maps -> (B, D)

The defaults are those of the settings classes (pipeline/losses/settings.py, poolings.py), which
docs/library.md lists. Every call of a loss is checked (pipeline/losses/door.py).
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import torch
from pydantic import ValidationError
from torch import nn

from unseen.losses import settings as losses
from unseen.losses.door import checked
from unseen.methods import modules
from unseen.methods.crt import branches_of
from unseen.methods.metric_loss import MetricLoss, Objective
from unseen.methods.multihead import Heads
from unseen.methods.settings import CrtRecipe, MultiheadRecipe
from unseen.poolings import settings as poolings
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

Settings = TypeVar("Settings", bound=Strict)


class MemoryLoss(losses.CrossBatchMemory):
    """A pair loss against the embeddings of earlier batches: cross-batch memory (Wang et al. 2020)."""

    momentum: Literal[None] = None  # an averaged network needs a method
    pair: losses.PairLoss = losses.ContrastiveLoss()


def _by_name(*unions: Any) -> dict[str, Any]:
    parts = (settings for union in unions for settings in get_args(union))
    return {settings.model_fields["name"].default: settings for settings in parts}


LOSSES: dict[str, type[Strict]] = {
    **_by_name(losses.AnyPairLoss, losses.AnyProxyLoss, losses.AnyOtherLoss),
    "memory": MemoryLoss,
    **losses.TERMS,
}
MAP_POOLINGS, ATTRIBUTE_POOLINGS = _by_name(poolings.AnyMapPooling), _by_name(poolings.AnyAttributePooling)


def loss(
    name: str,
    *,
    classes: int | None = None,
    dim: int | None = None,
    samples: int | None = None,
    attributes: int | None = None,
    **settings: Any,
) -> nn.Module:
    """The loss or term `name` of docs/library.md.

    classes, dim, samples, attributes: C, D, the number of training images and M, for a loss that needs them
    (`sizes_of`). `settings` replace published defaults. Raises UserError for an unknown name or setting, and
    for a missing size. A wrong call of the result is a ValueError.
    """
    kind = _class_of("loss", name, LOSSES)
    sizes = {"classes": classes, "dim": dim, "samples": samples, "attributes": attributes}
    if "dim" in kind.model_fields and dim is not None:
        settings["dim"] = dim
    chosen = _settings("loss", kind, name, settings)
    needed = sizes_of(name)
    if isinstance(chosen, MemoryLoss) and chosen.size is None:
        needed = (*needed, "samples")
    if missing := [size for size in needed if sizes[size] is None]:
        example = ", ".join(f"{size}=..." for size in needed)
        raise UserError(f"Loss {name} needs {', '.join(missing)}.", f'E.g. loss("{name}", {example}).')
    limits = {size: sizes[size] if size in needed else None for size in ("classes", "samples")}
    if name == "snca":  # a negative label is that of an image without a vector
        limits["classes"] = classes or torch.iinfo(torch.int64).max
    return checked(_built(chosen, sizes), dim, labels=limits["classes"], samples=limits["samples"])


def sizes_of(name: str) -> tuple[str, ...]:
    """The sizes that a loss needs: `classes`, `dim`, `samples`, `attributes`."""
    settings = LOSSES[name]
    if settings is losses.HybridLoss:
        return "classes", "dim"
    if settings is MemoryLoss:
        return ("dim",)
    names = inspect.signature(modules.load(settings.module)).parameters  # type: ignore[attr-defined]
    sizes = ("classes", "dim", "samples", "attributes")
    return tuple(size for size in sizes if size in names and size not in settings.model_fields)


def _built(settings: Strict, sizes: dict[str, int | None]) -> nn.Module:
    given = {name: size or 0 for name, size in sizes.items()}
    dim, classes, samples = given["dim"], given["classes"], given["samples"]
    if isinstance(settings, MemoryLoss):
        return Objective(MetricLoss(settings.pair, settings, dim, 1, classes, samples))
    if isinstance(settings, losses.HybridLoss):
        return Objective(MetricLoss(settings, None, dim, 1, classes, samples))
    return modules.loss(settings, **sizes)


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


class Head(NamedTuple):
    """A head of a paper: its recipe, the fields of the recipe that it reads, and its maker."""

    recipe: type[Strict]
    fields: tuple[str, ...]
    build: Callable[[Any, Any], nn.Module]


HEADS = {
    "crt": Head(CrtRecipe, ("embedding", "auxiliary", "transform", "networks", "branches"), branches_of),
    "multihead": Head(
        MultiheadRecipe,
        ("dim", "attention", "attention_scale", "attention_reduction"),
        lambda recipe, channels: Heads(dict(zip(("local", "global"), channels, strict=True)), recipe),
    ),
}


def head(name: str, channels: int | tuple[int, int], **settings: Any) -> nn.Module:
    """The head `name` of docs/library.md: feature maps to vectors, which are not unit vectors.

    `crt`: a map with L = `channels` to the vectors of both branches; `head(maps, 1)` computes the first, the
    test embedding, alone. `multihead`: maps [local, global] with two `channels` to one vector. `settings`
    replace published defaults. Raises UserError for an unknown name or setting, and for wrong `channels`.
    """
    chosen = _class_of("head", name, HEADS)
    recipe = _settings("head", chosen.recipe, name, settings, chosen.fields)
    try:
        head: nn.Module = chosen.build(recipe, channels)
    except (TypeError, ValueError) as error:
        remedy = 'E.g. head("crt", channels=512) or head("multihead", channels=(1024, 2048)).'
        raise UserError(f"Head {name} with channels {channels!r}: {error}.", remedy) from error
    return head


def _class_of(kind: str, name: str, known: dict[str, Any]) -> Any:
    if name not in known:
        raise UserError(f"There is no {kind} {name!r}.", f"Use one of {', '.join(known)}.")
    return known[name]


def _settings(
    kind: str,
    settings: type[Settings],
    name: str,
    changes: dict[str, Any],
    fields: tuple[str, ...] | None = None,
) -> Settings:
    """The settings with these changes of `fields`; None: of all that are arguments of the part. Raises
    UserError for an unknown one or a wrong value."""
    if fields is None:
        beside = {"name", *getattr(settings, "beside", ())}
        fields = tuple(field for field in settings.model_fields if field not in beside)
    try:
        for field in changes:
            if field not in fields:
                raise KeyError(field)
        return settings.parse(changes)
    except KeyError as error:
        problem = f"{error.args[0]} of {kind} {name} is unknown"
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        problem = f"{field} of {kind} {name} is wrong: {first['msg']}, got {first['input']!r}"
    raise UserError(f"The setting {problem}.", f"Its settings: {', '.join(fields) or 'none'}.")
