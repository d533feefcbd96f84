"""From the layers of a recipe to validated settings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from pipeline.config.dataset import IngestSettings, Source
from pipeline.config.document import Document, Params
from pipeline.config.layers import Layer, block_of, class_of, kind_of, layers_of, lineage
from pipeline.config.methods import Recipe, default_recipe, parse_recipe
from pipeline.config.names import suggestion
from pipeline.config.recipe_files import published, source_of, sweep_of
from pipeline.config.stages import SweepSettings
from pipeline.config.strict import Strict
from pipeline.runtime.errors import UserError

Settings = TypeVar("Settings", bound=Strict)
_SOURCES = {kind.model_fields["kind"].default: kind for kind in get_args(get_args(Source)[0])}
ABSENT = object()
_PARTS = ("pooling", "loss", "pair", "proxy")  # another `name` means another part, with other fields
_OF_ONE_NETWORK = ("arguments", "checkpoint")  # of backbone: another network has others


@dataclass(frozen=True)
class Leaf:
    """A value of a recipe and the layer that sets it. Leaves compare by value, so `merge` treats them as
    plain values."""

    value: Any
    layer: Layer | None = field(compare=False)  # None: a published default


def settings(params: Params, key: str, model: type[Settings]) -> Settings:
    """The block `key` as `model`. Raises UserError naming file, line and key."""
    return _validated(params, [(params, key)], params.read(key), model)


def dataset_settings(params: Params, dataset: str) -> tuple[Source, IngestSettings]:
    """The source of a data set, and the settings of ingest. A folder set without a path is in
    data/raw/<dataset>."""
    kind = kind_of(params, dataset)
    own = block_of(params, dataset).source
    known = (
        source_of(dataset)
        if dataset in published("datasets")
        else source_of(kind)
        if kind in published("datasets")
        else {}
    )
    value = {**(known if known.get("kind") == kind else {}), **own}
    if kind == "folder" and value.get("path") is None:
        value["path"] = f"data/raw/{dataset}"

    class _Holder(Strict):
        source: Source

    try:
        source = _Holder.parse({"source": value}).source
    except ValidationError as error:
        fields = _SOURCES[kind].model_fields if kind in _SOURCES else {}
        raise _explain(error, [(params, f"datasets.{dataset}")], {"source": dict.fromkeys(fields)}) from None
    return source, settings(params, "ingest", IngestSettings)


def sweep_settings(params: Params, method: str) -> SweepSettings:
    """The search of a method: the published one under the blocks `sweep.<m>` of the methods that it is like
    and its own.

    A key of a block replaces that key of the blocks below. Raises UserError where nothing defines a search
    space.
    """
    family = lineage(params, method)
    blocks = [(params, f"sweep.{name}") for name in reversed(family) if name in params.names("sweep")]
    merged = dict((sweep_of(family[0]) if family[0] in published("methods") else None) or {})
    for document, key in reversed(blocks):
        merged |= document.block(key)
    if "space" not in merged:
        raise UserError(
            f"{params.label}: sweep.{method} is missing, and no search space of {method} is published.",
            f"Add sweep.{method} with a `space`; docs/recipes.md describes it.",
        )
    return _validated(params, blocks or [(params, f"sweep.{method}")], merged, SweepSettings)


def resolve(params: Params, dataset: str, method: str, overrides: dict[str, Any] | None = None) -> Recipe:
    """The recipe of `method` on `dataset`; `overrides` (dotted fields, as a sweep sets them) win over every
    layer.

    Where a layer names another part (another loss, another pooling), the fields of the part that it replaces
    are dropped. Raises UserError naming file and line of the offending key.
    """
    layers = layers_of(params, dataset, method)
    merged = _published_defaults(params, method)
    for layer in layers:
        merged = merge(merged, layer.value)
    for path, value in (overrides or {}).items():
        merged = merge(merged, nested(path, value))
    try:
        return parse_recipe(merged)
    except ValidationError as error:
        places = [(layer.document, layer.key) for layer in reversed(layers)]
        raise _explain(error, places or [(params, f"methods.{method}")], merged) from None


def trace(params: Params, dataset: str, method: str) -> dict[str, Any]:
    """The merged recipe as `resolve` has it before validation, with a `Leaf` in place of each value."""
    merged = _leaves(_published_defaults(params, method), None)
    for layer in layers_of(params, dataset, method):
        merged = merge(merged, _leaves(layer.value, layer))
    return merged


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


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, block by block.

    Another pooling or loss replaces the whole part; another network drops what belongs to one network.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            result[key] = value
            continue
        renamed = value.get("name", old.get("name")) != old.get("name")
        dropped = (
            old.keys()
            if renamed and key in _PARTS
            else _OF_ONE_NETWORK
            if renamed and key == "backbone"
            else ()
        )
        result[key] = merge({name: rest for name, rest in old.items() if name not in dropped}, value)
    return result


def _published_defaults(params: Params, method: str) -> dict[str, Any]:
    first = lineage(params, method)[0]
    recipe = default_recipe(class_of(params, method), f"{params.label}: methods.{first}")
    return recipe.model_dump(mode="json")


def _leaves(value: dict[str, Any], layer: Layer | None) -> dict[str, Any]:
    return {
        key: _leaves(item, layer) if isinstance(item, dict) else Leaf(item, layer)
        for key, item in value.items()
    }


def _validated(
    params: Params, places: Sequence[tuple[Document, str]], value: Any, model: type[Settings]
) -> Settings:
    try:
        return model.parse(value)
    except ValidationError as error:
        raise _explain(error, places, dict.fromkeys(model.model_fields)) from None


def _explain(
    error: ValidationError, places: Sequence[tuple[Document, str]], merged: dict[str, Any]
) -> UserError:
    """A UserError for the first finding, at the line of the uppermost of `places` (document, key of a block)
    that has the key."""
    finding = error.errors()[0]
    path, node = [], merged
    for index, part in enumerate(
        map(str, finding["loc"])
    ):  # pydantic adds the tag of a union, which is no key of the file
        is_key = index + 1 == len(finding["loc"]) and finding["type"] in ("extra_forbidden", "missing")
        if isinstance(node, dict) and part not in node and not is_key:
            continue
        path.append(part)
        if isinstance(node, dict) and isinstance(node.get(part), dict):
            node = node[part]
    holder: Any = merged
    for part in path[:-1]:
        holder = holder.get(part) if isinstance(holder, dict) else None
    document, block = places[-1]
    written = (
        path[:-1] if finding["type"] == "missing" else path
    )  # a missing key has no line: its block has one
    line = None
    for document_above, block_above in places:
        line = document_above.line(".".join([block_above, *written]))
        if line is not None:
            document, block = document_above, block_above
            break
    key = ".".join([block, *path] if isinstance(document, Params) else path)
    where = f"{document.label}:{line}" if line else document.label
    if finding["type"] == "extra_forbidden":
        known = sorted(str(name) for name in (holder or {}) if name != path[-1])
        listed = (
            f"{suggestion(path[-1], known)}Known here: {', '.join(known)}."
            if known
            else "Remove it, or correct its name."
        )
        return UserError(f"{where}: {key} is not a setting.", listed)
    if finding["type"].startswith("union_tag"):
        context = finding["ctx"]
        name = context["discriminator"].strip("'")
        if "tag" not in context:
            return UserError(
                f"{where}: {key}.{name} is missing.", f"Add `{name}: ` and one of the known names."
            )
        known = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
        return UserError(
            f"{where}: unknown {key}.{name} {context['tag']!r}.",
            f"{suggestion(context['tag'], known)}Known are: {', '.join(known)}.",
        )
    if finding["type"] == "missing":
        return UserError(f"{where}: {key} is missing.", "Add it.")
    got = "" if isinstance(finding["input"], dict) else f", got {finding['input']!r}"
    problem = finding["msg"].removeprefix("Value error, ")
    return UserError(f"{where}: {key}: {problem}{got}.", "Correct the value.")
