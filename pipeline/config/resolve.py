"""From params.yaml to validated settings: published defaults < methods.<m> < datasets.<d>.recipe < datasets.<d>.recipes.<m>."""

import difflib
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from pipeline.config.dataset import IngestSettings, Source
from pipeline.config.methods import Recipe, default_recipe, parse_recipe
from pipeline.config.params import Params
from pipeline.config.strict import Strict
from pipeline.runtime.errors import UserError

Settings = TypeVar("Settings", bound=Strict)
_SOURCES = {kind.model_fields["kind"].default: kind for kind in get_args(get_args(Source)[0])}
ABSENT = object()
_PARTS = ("pooling", "loss", "pair", "proxy")  # another name there is another part, with other fields
_OF_ONE_NETWORK = ("arguments", "checkpoint")  # of backbone: they say nothing to another network


@dataclass(frozen=True)
class Leaf:
    """A value of a recipe and the layer that set it. Leaves compare by value, so that `merge` does to them what it does to plain values."""

    value: Any
    layer: str = field(compare=False)  # such as methods.ms; empty: a published default


def settings(params: Params, key: str, model: type[Settings]) -> Settings:
    """The block `key` as `model`. Raises UserError naming file, line and key."""
    value = params.read(key)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _explain(error, params, [key], dict.fromkeys(model.model_fields)) from None


def dataset_settings(params: Params, dataset: str) -> tuple[Source, IngestSettings]:
    """The source of a data set, and how ingest treats it."""
    _known(params, "datasets", dataset)

    class _Holder(Strict):
        source: Source

    key = f"datasets.{dataset}.source"
    value = params.read(key)
    try:
        source = _Holder.model_validate({"source": value}).source
    except ValidationError as error:
        kind = value.get("kind") if isinstance(value, dict) else None
        fields = _SOURCES[kind].model_fields if isinstance(kind, str) and kind in _SOURCES else {}
        raise _explain(error, params, [f"datasets.{dataset}"], {"source": dict.fromkeys(fields)}) from None
    return source, settings(params, "ingest", IngestSettings)


def resolve(params: Params, dataset: str, method: str, overrides: dict[str, Any] | None = None) -> Recipe:
    """The recipe of `method` on `dataset`; `overrides` (dotted fields, as a sweep sets them) win over every layer.

    Where a layer names another part (another loss, another pooling), the fields of the part that it replaces are dropped.
    Raises UserError naming the line of params.yaml that holds the offending key.
    """
    merged: dict[str, Any] = {}
    for _, value in _layers(params, dataset, method):
        merged = merge(merged, value)
    for path, value in (overrides or {}).items():
        merged = merge(merged, nested(path, value))
    try:
        return parse_recipe(merged)
    except ValidationError as error:
        raise _explain(error, params, list(layers_of(dataset, method))[::-1], merged) from None


def trace(params: Params, dataset: str, method: str, upto: str | None = None) -> dict[str, Any]:
    """The merged recipe as `resolve` has it before validation, a `Leaf` in place of each value. `upto` leaves out the layers above that one."""
    merged: dict[str, Any] = {}
    for layer, value in _layers(params, dataset, method):
        merged = merge(merged, _leaves(value, layer))
        if layer == upto:
            break
    return merged


def layers_of(dataset: str, method: str) -> tuple[str, str, str]:
    """The blocks of params.yaml that make the recipe of `method` on `dataset`, the one that wins last."""
    return (f"methods.{method}", f"datasets.{dataset}.recipe", f"datasets.{dataset}.recipes.{method}")


def at(tree: Any, path: str) -> Any:
    """What nested dicts hold at `a.b`; ABSENT where they do not."""
    for part in path.split("."):
        tree = tree.get(part, ABSENT) if isinstance(tree, dict) else ABSENT
    return tree


def nested(path: str, value: Any) -> Any:
    """{"a": {"b": value}} of `a.b`."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def _layers(params: Params, dataset: str, method: str) -> list[tuple[str, dict[str, Any]]]:
    """Published defaults under the empty key, and the three blocks, the one that wins last."""
    _known(params, "datasets", dataset)
    _known(params, "methods", method)
    blocks = [(layer, _block(params, layer)) for layer in layers_of(dataset, method)]
    published = default_recipe(blocks[0][1].get("method", ""), f"{params.path}: methods.{method}")
    return [("", published.model_dump(mode="json")), *blocks]


def _leaves(value: dict[str, Any], layer: str) -> dict[str, Any]:
    return {key: _leaves(one, layer) if isinstance(one, dict) else Leaf(one, layer) for key, one in value.items()}


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` laid over `below`, block by block.

    Another pooling or loss replaces the whole part; another network drops what belongs to one network.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            result[key] = value
            continue
        renamed = value.get("name", old.get("name")) != old.get("name")
        dropped = old.keys() if renamed and key in _PARTS else _OF_ONE_NETWORK if renamed and key == "backbone" else ()
        result[key] = merge({field: kept for field, kept in old.items() if field not in dropped}, value)
    return result


def _block(params: Params, key: str) -> dict[str, Any]:
    value = params.read(key) or {}
    if not isinstance(value, dict):
        raise UserError(
            f"{params.path}:{params.line(key)}: {key} must be a block of settings, got {value!r}.", "Write `key: value` lines below it, or {}."
        )
    return value


def _known(params: Params, group: str, name: str) -> None:
    names = params.names(group)
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UserError(f"{params.path}: there is no {group}.{name}.", f"{hint}Known are: {', '.join(names)}. run.{group} chooses among them.")


def _explain(error: ValidationError, params: Params, layers: list[str], merged: dict[str, Any]) -> UserError:
    """A UserError for the first of pydantic's findings, at the line of the uppermost layer that holds the key."""
    finding = error.errors()[0]
    path, node = [], merged
    for index, part in enumerate(map(str, finding["loc"])):  # pydantic puts the tag of a union into the path: not a key of params.yaml
        is_key = index + 1 == len(finding["loc"]) and finding["type"] in ("extra_forbidden", "missing")
        if isinstance(node, dict) and part not in node and not is_key:
            continue
        path.append(part)
        if isinstance(node, dict) and isinstance(node.get(part), dict):
            node = node[part]
    holder: Any = merged
    for part in path[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    key, line = ".".join([layers[-1], *path]), None
    written = path[:-1] if finding["type"] == "missing" else path  # what is missing has no line: that of its block
    for layer in layers:
        line = params.line(".".join([layer, *written]))
        if line is not None:
            key = ".".join([layer, *path])
            break
    where = f"{params.path}:{line}" if line else str(params.path)
    if finding["type"] == "extra_forbidden":
        known = sorted(str(name) for name in (holder or {}) if name != path[-1])
        close = difflib.get_close_matches(path[-1], known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        listed = f"{hint}Known here: {', '.join(known)}." if known else "Remove it, or correct its name."
        return UserError(f"{where}: {key} is not a setting.", listed)
    if finding["type"].startswith("union_tag"):
        context = finding["ctx"]
        field = context["discriminator"].strip("'")
        if "tag" not in context:
            return UserError(f"{where}: {key}.{field} is missing.", "Say there which one it is.")
        known = [name.strip("'") for name in context["expected_tags"].split(", ")]
        close = difflib.get_close_matches(context["tag"], known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        return UserError(f"{where}: {key}.{field} is {context['tag']!r}, which there is not.", f"{hint}Known are: {', '.join(known)}.")
    if finding["type"] == "missing":
        return UserError(f"{where}: {key} is missing.", "Add it.")
    got = "" if isinstance(finding["input"], dict) else f", got {finding['input']!r}"
    return UserError(f"{where}: {key}: {finding['msg']}{got}.", "Correct the value.")
