"""Methods and data sets by name, and the layers of their recipes. Each layer overrides those above it in this
list:

    published defaults (config/methods.py)
    < pipeline/recipes/methods/<m>.yaml              the setting of the paper
    < pipeline/recipes/datasets/<d>.yaml             network, images and schedule of a small set
    < the paper's changes for that data set          methods/<m>.yaml, changes
    < the data set's changes for that method         datasets/<d>.yaml, changes
    < its changes for a setting of its source        datasets/<d>.yaml, sources
    < a published variant                            methods/<m>.yaml, recipe, if the file has `like`
    < params.yaml: methods.<m>
    < params.yaml: datasets.<d>.recipe
    < params.yaml: datasets.<d>.methods.<m>
    < params.yaml: weights                           backbone.checkpoint, where no other layer sets it

A variant (`methods.gsp_soft: {like: gsp, ...}`) has all layers of the method that `like` names. In each layer
of params.yaml the block of the variant overrides the block of that method. A row of a study has the published
layers and its own changes (study_row.py), and no layer of params.yaml. A data set that params.yaml
defines has the published layers of the kind of its source: those of pipeline/recipes/datasets/folder.yaml for
`kind: folder`. A data set with source settings of a study has all layers of the data set that it is like.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from unseen.config.document import Params
from unseen.config.layers import Layers, Patch
from unseen.config.place import Place, Tree
from unseen.config.recipe_files import method_class, method_file, published, published_patches, source_of
from unseen.methods.settings import CLASSES
from unseen.runtime.errors import UserError
from unseen.runtime.setting_names import checked_name, suggestion
from unseen.runtime.settings import Strict


class DatasetBlock(Strict):
    """Block `datasets.<d>` of params.yaml."""

    source: dict[str, Any] = {}
    recipe: dict[str, Any] = {}  # for every method
    methods: dict[str, dict[str, Any]] = {}  # for one method


def methods_of(params: Params) -> list[str]:
    """The names of all methods: the published ones, those that params.yaml defines, and the rows of studies
    in the run."""
    return list(dict.fromkeys([*published("methods"), *params.names("methods"), *params.rows]))


def datasets_of(params: Params) -> list[str]:
    """The names of all data sets: the published ones, those that params.yaml defines, and those of studies in
    the run."""
    return list(dict.fromkeys([*published("datasets"), *params.names("datasets"), *params.sets]))


def like_of(params: Params, dataset: str) -> str:
    """The data set that a data set of a study is like; any other data set itself."""
    return params.sets[dataset].like if dataset in params.sets else dataset


def lineage(params: Params, method: str) -> tuple[str, ...]:
    """`method` and the methods that `like` leads to, `method` last. The first one is published, or has no
    `like`. Raises UserError for an unknown name or a cycle."""
    names: list[str] = []
    while True:
        require_known(params, "methods", method, methods_of(params))
        if method in names:
            raise UserError(
                f"{params.label}:{params.line(f'methods.{method}')}: methods.{method} is like itself: "
                f"{' -> '.join([*names, method])}.",
                "Let one of them be like a published method.",
            )
        names.append(method)
        if method in params.rows:
            method = params.rows[method].like
            continue
        parent = params.block(f"methods.{method}").get("like")
        is_published = method in published("methods")
        published_parent = method_file(method).like if is_published else None
        if parent is None and published_parent is None:
            return tuple(reversed(names))
        if parent is not None and is_published:
            raise UserError(
                f"{params.label}:{params.line(f'methods.{method}.like')}: methods.{method} is a published "
                "recipe and cannot be like another.",
                "Give the variant another name.",
            )
        method = str(parent or published_parent)


def published_method(params: Params, method: str) -> str | None:
    """The published method that `method` is or is like; None for a method that only params.yaml defines."""
    first = lineage(params, method)[0]
    return first if first in published("methods") else None


def class_of(params: Params, method: str) -> str:
    """The class of recipe (config/methods.py) of a method. Raises UserError if no layer names a class."""
    name = published_method(params, method)
    if name is not None:
        for variant in lineage(params, method):
            if "method" in params.block(f"methods.{variant}"):
                raise UserError(
                    f"{params.label}:{params.line(f'methods.{variant}.method')}: methods.{variant}.method: "
                    f"{variant} is a {method_class(name)} recipe, which cannot change.",
                    "Remove `method`, or define a method under another name.",
                )
        return method_class(name)
    first = lineage(params, method)[0]
    kind = params.block(f"methods.{first}").get("method")
    if kind is None:
        raise UserError(
            f"{params.label}:{params.line(f'methods.{first}')}: methods.{first} has neither `like` nor "
            "`method`.",
            f"Add `like: ` and the method that it is a variant of ({', '.join(published('methods'))}), or "
            "`method: ` and a class of recipe.",
        )
    if kind not in CLASSES:
        raise UserError(
            f"{params.label}: methods.{first}: `method` must be one of {', '.join(CLASSES)}, "
            f"got {str(kind)!r}.",
            "Correct `method`.",
        )
    return str(kind)


def kind_of(params: Params, dataset: str) -> str:
    """The kind of a data set's source, which determines its published layers. Raises UserError for an unknown
    data set."""
    require_known(params, "datasets", dataset, datasets_of(params))
    kind = block_of(params, dataset).source.get("kind")
    dataset = like_of(params, dataset)
    if kind is None and dataset in published("datasets"):
        return str(source_of(dataset)["kind"])
    if kind is None:
        raise UserError(
            f"{params.label}:{params.line(f'datasets.{dataset}')}: datasets.{dataset}.source.kind is "
            "missing.",
            f"Add `source: {{kind: folder, path: ...}}`, or another kind: "
            f"{', '.join(published('datasets'))}.",
        )
    return str(kind)


def block_of(params: Params, dataset: str) -> DatasetBlock:
    """Block `datasets.<d>` of params.yaml, with the source settings of a study; empty if it is missing.
    Raises UserError for an unknown key."""
    key = f"datasets.{like_of(params, dataset)}"
    try:
        block = DatasetBlock.parse(params.block(key))
        if dataset not in params.sets:
            return block
        return block.model_copy(update={"source": {**block.source, **params.sets[dataset].source}})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        where = f"{params.label}:{params.line(f'{key}.{field}') or params.line(key)}"
        if first["type"] == "extra_forbidden" and first["loc"][0] == "recipes":
            raise UserError(
                f"{where}: {key}.recipes is of an earlier version.",
                f"Published recipes are in pipeline/recipes. Move your changes to {key}.methods and remove "
                "the rest.",
            ) from None
        if first["type"] == "extra_forbidden":
            known = ", ".join(DatasetBlock.model_fields)
            raise UserError(
                f"{where}: {key}.{field} is not a setting.",
                f"{suggestion(field, DatasetBlock.model_fields)}Known here: {known}.",
            ) from None
        raise UserError(
            f"{where}: {key}.{field} must be a block of settings, got {first['input']!r}.",
            "Write `key: value` lines below it, or {}.",
        ) from None


def layers_of(params: Params, dataset: str, method: str) -> Layers:
    """The layers of the recipe of a method on a data set. Raises UserError for unknown names."""
    family = lineage(params, method)
    kind = kind_of(params, dataset)
    block = block_of(params, dataset)
    row = params.rows.get(method)
    key = f"datasets.{like_of(params, dataset)}"
    patches = [
        *published_patches([name for name in family if name in published("methods")], kind, block.source),
        *(
            Patch(Place.of(params, f"methods.{name}"), _recipe(params.block(f"methods.{name}")))
            for name in family
            if row is None or name not in published("methods")
        ),
    ]
    if row is not None:
        patches.append(row.patch(kind))
    else:
        patches += [
            Patch(Place.of(params, f"{key}.recipe"), block.recipe),
            *(
                Patch(Place.of(params, f"{key}.methods.{name}"), block.methods.get(name, {}))
                for name in family
            ),
        ]
    return Layers(class_of(params, method), tuple(patches), (_local_weights(params),))


def require_known(params: Params, group: str, name: str, known: Sequence[str]) -> None:
    """Raises UserError for an invalid or unknown name."""
    try:
        checked_name(name)
    except ValueError as error:
        raise UserError(f"{params.label}: {group}.{name}: {error}.", "Rename it.") from None
    if name not in known:
        line = params.line(f"{group}.{name}")
        axis = "sweeps" if group == "sweep" else group
        raise UserError(
            f"{params.label}{f':{line}' if line else ''}: unknown {group}.{name}.",
            f"{suggestion(name, known)}Known are: {', '.join(known)}. run.{axis} lists those to run.",
        )


def _recipe(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "like"}


def _local_weights(params: Params) -> Patch:
    """The file in block `weights` of params.yaml for the network, if it starts from published weights and no
    layer sets a checkpoint."""
    files = params.block("weights")

    def checkpoint(below: Tree) -> Tree:
        backbone = below["backbone"]
        path = files.get(str(backbone.get("name"))) if isinstance(backbone, dict) else None
        if path is None or not backbone.get("pretrained", True) or backbone.get("checkpoint") is not None:
            return {}
        return {"backbone": {"checkpoint": path}}

    return Patch(Place.of(params, "weights"), checkpoint)
