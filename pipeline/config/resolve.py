"""Merges the layers of a recipe and validates the result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from unseen.config.document import Document, Params
from unseen.config.layers import Layer, block_of, class_of, kind_of, layers_of, like_of, lineage, methods_of
from unseen.config.recipe_files import published, recall_at_of, source_of, sweep_of
from unseen.config.stages import EnsembleBlock, EnsembleSettings, RowSweepBlock, RunSettings, SweepSettings
from unseen.config.study_row import StudyRow
from unseen.data.ingest.settings import IngestSettings, Source
from unseen.evaluation.settings import EvaluateBlock, EvaluateSettings, Ranks
from unseen.methods.settings import Recipe, default_recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import suggestion
from unseen.runtime.settings import Strict, as_json

Settings = TypeVar("Settings", bound=Strict)
_SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
_SOURCES = {kind.model_fields["kind"].default: kind for kind in get_args(get_args(Source)[0])}
ABSENT = object()
_PARTS = ("pooling", "loss", "pair", "proxy")  # blocks whose fields depend on `name`
# earlier settings -> what replaces them
MOVED = {
    "check": "Stage `resolve` replaces stage `check` and has no settings. Remove this block.",
    "ensemble.repeats": "List one seed per training of a fold: `seeds: [0, 1, 2]`.",
    "ensemble.seed": "List one seed per training of a fold: `seeds: [0, 1, 2]`.",
    "ensemble.concurrent": "Members are stages: `unseen run -j N` runs N at a time. Remove this line.",
    "train.cpus_per_worker": "The number of threads changes a result, so recipes have it: training.threads, "
    "2 by default. Remove this line. For another number on a data set, write below datasets.<data set>: "
    "`recipe: {training: {threads: 4}}`.",
}
# fields of block backbone that belong to one network
_NETWORK_FIELDS = ("arguments", "checkpoint", "batch_norm_momentum")


@dataclass(frozen=True)
class Leaf:
    """A value of a recipe and the layer that sets it. Leaves compare by value, so that `merge` treats them as
    plain values."""

    value: Any
    layer: Layer | None = field(compare=False)  # None: a published default


def settings(params: Params, key: str, model: type[Settings]) -> Settings:
    """The block `key` as `model`. Raises UserError naming file, line and key."""
    return _validated(params, [(params, key)], params.read(key), model)


def dataset_settings(params: Params, dataset: str) -> tuple[Source, IngestSettings]:
    """The source of a data set, and the settings of ingest. The default path of a folder set is
    data/raw/<dataset>."""
    kind = kind_of(params, dataset)
    name = like_of(params, dataset)
    published_name = next((known for known in (name, kind) if known in published("datasets")), None)
    published_source = source_of(published_name) if published_name is not None else {}
    if published_source.get("kind") != kind:
        published_source = {}
    value = {**published_source, **block_of(params, dataset).source}
    if kind == "folder" and value.get("path") is None:
        value["path"] = f"data/raw/{name}"
    blocks: list[tuple[Document, str]] = [(params, f"datasets.{name}.source")]
    if dataset in params.sets:
        blocks.insert(0, (params.sets[dataset].document, params.sets[dataset].key))
    try:
        source = _SOURCE.validate_json(as_json(value))
    except ValidationError as error:
        fields = _SOURCES[kind].model_fields if kind in _SOURCES else {}
        raise _explain(error, blocks, dict.fromkeys(fields)) from None
    return source, settings(params, "ingest", IngestSettings)


def evaluate_settings(params: Params, block: EvaluateBlock, dataset: str) -> EvaluateSettings:
    """Block `evaluate` for a data set, with its K of Recall@K."""
    return EvaluateSettings(**dict(block) | {"recall_at": block.recall_at or _recall_at(params, dataset)})


def ensemble_settings(params: Params, block: EnsembleBlock, dataset: str) -> EnsembleSettings:
    """Block `ensemble` for a data set, with its K of Recall@K."""
    return EnsembleSettings(**dict(block) | {"recall_at": block.recall_at or _recall_at(params, dataset)})


def sweep_settings(params: Params, method: str) -> SweepSettings:
    """The sweep of a method: the published one, overridden by the blocks `sweep.<m>` of its lineage, its
    block last, and by `run.budget`. A row of a study with `search` has that search alone; params.yaml may set
    `concurrent` for it.

    A key of a block replaces the whole value of that key. Raises UserError if no layer defines a search
    space.
    """
    row = params.rows.get(method)
    if row is not None and row.search is not None:
        return _row_sweep(params, method, row, row.search)
    family = lineage(params, method)
    blocks = [(params, f"sweep.{name}") for name in reversed(family) if name in params.names("sweep")]
    merged = dict((sweep_of(family[0]) if family[0] in published("methods") else None) or {})
    for document, key in reversed(blocks):
        merged |= document.block(key)
    if "space" not in merged:
        raise UserError(
            f"{params.label}: sweep.{method} is missing, and {method} has no published search space.",
            f"Add sweep.{method} with a `space`; docs/recipes.md describes it.",
        )
    if params.names("run") and (budget := settings(params, "run", RunSettings).budget) is not None:
        merged |= budget.model_dump()
        blocks.append((params, "run.budget"))
    return _validated(params, blocks or [(params, f"sweep.{method}")], merged, SweepSettings)


def _row_sweep(params: Params, method: str, row: StudyRow, search: dict[str, Any]) -> SweepSettings:
    """The sweep of a row: the search of its study, in its own space or in the published one of the method."""
    first = lineage(params, method)[0]
    published_sweep = (sweep_of(first) if first in published("methods") else None) or {}
    where = f"{row.document.label}:{row.document.line(f'{row.study}.search')}: {row.study}.search"
    space = search["space"] or published_sweep.get("space")
    if space is None:
        raise UserError(f"{where}: {first} of {method} has no published search space.", "Add `space`.")
    merged = search | {"space": space, "concurrent": _row_block(params, method).concurrent}
    try:
        return _validated(params, [(row.document, f"{row.study}.search")], merged, SweepSettings)
    except UserError as error:
        raise UserError(f"{error.what.rstrip('.')} (row {method}).", error.remedy) from None


def _row_block(params: Params, method: str) -> RowSweepBlock:
    key = f"sweep.{method}"
    return _validated(params, [(params, key)], params.block(key), RowSweepBlock)


def concurrent_trials(params: Params, method: str) -> int:
    """`concurrent` of the sweep of a method or of a row of a study. `params` need not contain the rows: a
    stage does not read the studies."""
    if method in methods_of(params):
        return sweep_settings(params, method).concurrent
    return _row_block(params, method).concurrent


def sweep_space(params: Params, method: str) -> str:
    """Where the space of a sweep is defined: `params.yaml:12: sweep.gsp.space`."""
    row = params.rows.get(method)
    if row is not None and row.search is not None:
        document: Document = row.document
        key, parent = f"{row.study}.search.space", f"{row.study}.search"
    else:
        document, key, parent = params, f"sweep.{method}.space", f"sweep.{method}"
    line = document.line(key) or document.line(parent)
    return f"{document.label}{f':{line}' if line else ''}: {key}"


def resolve(params: Params, dataset: str, method: str, overrides: dict[str, Any] | None = None) -> Recipe:
    """The recipe of `method` on `dataset`. `overrides` (dotted fields, as a sweep sets them) override every
    layer.

    If a layer changes the name of a part (another loss, another pooling), the fields of the replaced part are
    dropped. Raises UserError with file and line of the incorrect key.
    """
    layers = layers_of(params, dataset, method)
    merged = _published_defaults(params, method)
    for layer in layers:
        merged = merge(merged, layer.value)
    for path, value in (overrides or {}).items():
        merged = merge(merged, nested(path, value))
    if (local := _local_weights(params, at(merged, "backbone"))) is not None:
        merged = merge(merged, local.value)
    try:
        return parse_recipe(merged)
    except ValidationError as error:
        places = [(layer.document, layer.key) for layer in reversed(layers)]
        raise _explain(error, places or [(params, f"methods.{method}")], merged) from None


def trace(params: Params, dataset: str, method: str) -> dict[str, Any]:
    """The merged recipe of `resolve` before validation, with a `Leaf` in place of each value."""
    merged = _leaves(_published_defaults(params, method), None)
    for layer in layers_of(params, dataset, method):
        merged = merge(merged, _leaves(layer.value, layer))
    backbone = {key: leaf.value for key, leaf in merged["backbone"].items() if isinstance(leaf, Leaf)}
    if (local := _local_weights(params, backbone)) is not None:
        merged = merge(merged, _leaves(local.value, local))
    return merged


def at(tree: Any, path: str) -> Any:
    """The value of nested dicts at a dotted path `a.b`; ABSENT if it does not exist."""
    for key in path.split("."):
        tree = tree.get(key, ABSENT) if isinstance(tree, dict) else ABSENT
    return tree


def nested(path: str, value: Any) -> Any:
    """{"a": {"b": value}} for the dotted path `a.b`."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """The blocks of `below`, overridden by those of `above`.

    A changed name of a pooling or loss drops all fields of the old part. A changed name of the network drops
    the fields that belong to one network.
    """
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            result[key] = value
            continue
        if value.get("name", old.get("name")) != old.get("name"):
            if key in _PARTS:
                old = {}
            elif key == "backbone":
                old = {name: item for name, item in old.items() if name not in _NETWORK_FIELDS}
        result[key] = merge(old, value)
    return result


def _local_weights(params: Params, backbone: Any) -> Layer | None:
    """The file in block `weights` of params.yaml for the network, if it starts from published weights and no
    layer sets a checkpoint."""
    files = params.block("weights")
    path = files.get(str(backbone.get("name"))) if isinstance(backbone, dict) else None
    if path is None or not backbone.get("pretrained", True) or backbone.get("checkpoint") is not None:
        return None
    return Layer(params, "weights", {"backbone": {"checkpoint": path}})


def _recall_at(params: Params, dataset: str) -> Ranks:
    """The published K of Recall@K of the kind of a data set's source."""
    kind = kind_of(params, dataset)
    return recall_at_of(kind) if kind in published("datasets") else EvaluateSettings().recall_at


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
    error: ValidationError, blocks: Sequence[tuple[Document, str]], merged: dict[str, Any]
) -> UserError:
    """A UserError for the first problem of `error`.

    `blocks` are the blocks (document, key) from which `merged` was merged, that with the highest precedence
    first. The error names the line of the key in the first block that contains it.
    """
    problem = error.errors()[0]
    path, siblings = _key_path(problem, merged)
    # A missing key has no line. The line of its block is given instead.
    located = path[:-1] if problem["type"] == "missing" else path
    document, block = blocks[-1]
    line = None
    for candidate, candidate_block in blocks:
        line = candidate.line(".".join([candidate_block, *located]))
        if line is not None:
            document, block = candidate, candidate_block
            break
    key = ".".join([block, *path] if isinstance(document, Params) or not path else path)
    where = f"{document.label}:{line}" if line else document.label
    kind = problem["type"]
    if kind == "extra_forbidden":
        known = sorted(str(name) for name in siblings if name != path[-1])
        remedy = MOVED.get(key, f"{suggestion(path[-1], known)}Known here: {', '.join(known)}.")
        return UserError(
            f"{where}: {key} is not a setting.", remedy if known else "Remove it, or correct its name."
        )
    if kind.startswith("union_tag"):
        context = problem["ctx"]
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
    if kind == "missing":
        return UserError(f"{where}: {key} is missing.", "Add it.")
    message = problem["msg"].removeprefix("Value error, ")
    value = "" if isinstance(problem["input"], dict) else f", got {problem['input']!r}"
    return UserError(f"{where}: {key}: {message}{value}.", "Correct the value.")


def _key_path(problem: ErrorDetails, merged: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
    """The keys that lead to a problem in the file, and the block that contains the last one.

    pydantic adds the tag of a union to the location. The tag is not a key of the file and is omitted.
    """
    location = list(map(str, problem["loc"]))
    names_a_key = problem["type"] in ("extra_forbidden", "missing")
    path: list[str] = []
    node: Any = merged
    for index, part in enumerate(location):
        is_key = names_a_key and index + 1 == len(location)
        if isinstance(node, dict) and part not in node and not is_key:
            continue
        path.append(part)
        if isinstance(node, dict) and isinstance(node.get(part), dict):
            node = node[part]
    block: Any = merged
    for part in path[:-1]:
        block = block.get(part) if isinstance(block, dict) else None
    return path, block or {}
