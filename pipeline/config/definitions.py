"""Methods and data sets by name, and the layers of their recipes. Each layer overrides those above it in this
list:

    published defaults (methods/settings.py)
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

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from unseen.config.document import Params
from unseen.config.layers import Layers, Patch
from unseen.config.place import Place, Tree, explained
from unseen.config.recipe_files import method_class, method_file, published, published_patches, source_of
from unseen.config.study_row import StudyRow, StudySet
from unseen.data.ingest.settings import OutsideSource
from unseen.methods.settings import CLASSES, OutsideRecipe
from unseen.runtime.errors import UserError
from unseen.runtime.parts import Kind, names_a_class, outside, trusted
from unseen.runtime.setting_names import checked_name, suggestion
from unseen.runtime.settings import Strict


class DatasetBlock(Strict):
    """Block `datasets.<d>` of params.yaml."""

    source: dict[str, Any] = {}
    recipe: dict[str, Any] = {}  # for every method
    methods: dict[str, dict[str, Any]] = {}  # for one method


@dataclass(frozen=True)
class DatasetDefinition:
    """A data set by name."""

    like: str  # the data set that a data set of a study is like; of any other the name itself
    kind: str  # of the source, which determines the published layers
    reader: type[OutsideSource] | None  # the source of a user
    source: Mapping[str, Any]  # set by params.yaml and the study
    recipe: Mapping[str, Any]  # set by params.yaml, for every method
    methods: Mapping[str, Mapping[str, Any]]  # set by params.yaml, for one method


@dataclass(frozen=True)
class Definitions:
    """All methods and data sets by name: the published ones, those of params.yaml, and those of studies in
    the run (pipeline/experiments/catalogue.py)."""

    params: Params
    rows: Mapping[str, StudyRow] = field(default_factory=dict)  # methods that are rows of studies
    sets: Mapping[str, StudySet] = field(default_factory=dict)  # data sets with source settings of studies

    def methods(self) -> list[str]:
        """The names of all methods."""
        return list(dict.fromkeys([*published("methods"), *self.params.names("methods"), *self.rows]))

    def datasets(self) -> list[str]:
        """The names of all data sets."""
        return list(dict.fromkeys([*published("datasets"), *self.params.names("datasets"), *self.sets]))

    def dataset(self, name: str) -> DatasetDefinition:
        """A data set. Raises UserError for an unknown name, an unknown key of its block, and a source without
        a kind."""
        self.require_known("datasets", name)
        of_study = self.sets.get(name)
        like = of_study.like if of_study else name
        block = _dataset_block(self.params, f"datasets.{like}")
        source = {**block.source, **(of_study.source if of_study else {})}
        kind = source.get("kind")
        reader: type[OutsideSource] | None = None
        if source.get("module") is not None:
            reader = self._outside(OutsideSource, f"datasets.{like}.source", source)
            kind = reader.LIKE
        if kind is None and like in published("datasets"):
            kind = source_of(like)["kind"]
        if kind is None:
            raise UserError(
                f"{self.params.where(f'datasets.{like}')}.source.kind is missing.",
                f"Add `source: {{kind: folder, path: ...}}`, or another kind: "
                f"{', '.join(published('datasets'))}.",
            )
        return DatasetDefinition(like, str(kind), reader, source, block.recipe, block.methods)

    def layers(self, dataset: str, method: str) -> Layers:
        """The layers of the recipe of a method on a data set. Raises UserError for unknown names."""
        family, data, row = self.lineage(method), self.dataset(dataset), self.rows.get(method)
        paper = [name for name in family if name in published("methods")]
        patches = [*published_patches(paper, data.kind, data.source)]
        for name in family:
            if row is None or name not in paper:
                block = self.params.block(f"methods.{name}")
                block.pop("like", None)
                patches.append(Patch(Place.of(self.params, f"methods.{name}"), block))
        if row is not None:
            patches.append(row.patch(data.kind))
        else:
            key = f"datasets.{data.like}"
            patches.append(Patch(Place.of(self.params, f"{key}.recipe"), data.recipe))
            patches += [
                Patch(Place.of(self.params, f"{key}.methods.{name}"), data.methods.get(name, {}))
                for name in family
            ]
        return Layers(self._class_of(method), tuple(patches), (_local_weights(self.params),))

    def lineage(self, method: str) -> tuple[str, ...]:
        """`method` and the methods that `like` leads to, `method` last. The first one is published, or has no
        `like`. Raises UserError for an unknown name or a cycle."""
        names: list[str] = []
        while True:
            self.require_known("methods", method)
            if method in names:
                raise UserError(
                    f"{self.params.where(f'methods.{method}')} is like itself: "
                    f"{' -> '.join([*names, method])}.",
                    "Let one of them be like a published method.",
                )
            names.append(method)
            if method in self.rows:
                method = self.rows[method].like
                continue
            parent = self.params.block(f"methods.{method}").get("like")
            is_published = method in published("methods")
            published_parent = method_file(method).like if is_published else None
            if parent is None and published_parent is None:
                return tuple(reversed(names))
            if parent is not None and is_published:
                raise UserError(
                    f"{self.params.label}:{self.params.line(f'methods.{method}.like')}: methods.{method} is "
                    "a published recipe and cannot be like another.",
                    "Give the variant another name.",
                )
            method = str(parent or published_parent)

    def require_known(self, group: str, name: str) -> None:
        """Raises UserError for an invalid or unknown name in a block `methods`, `sweep` or `datasets`."""
        try:
            checked_name(name)
        except ValueError as error:
            raise UserError(f"{self.params.label}: {group}.{name}: {error}.", "Rename it.") from None
        known = self.datasets() if group == "datasets" else self.methods()
        if name not in known:
            line, label = self.params.line(f"{group}.{name}"), self.params.label
            axis = "sweeps" if group == "sweep" else group
            raise UserError(
                f"{label}{f':{line}' if line else ''}: unknown {group}.{name}.",
                f"{suggestion(name, known)}Known are: {', '.join(known)}. run.{axis} lists those to run.",
            )

    def _class_of(self, method: str) -> str:
        """The class of recipe of a method (methods/settings.py). Raises UserError if no layer names one."""
        family = self.lineage(method)
        first = family[0]
        if first in published("methods"):
            for variant in family:
                if "method" in self.params.block(f"methods.{variant}"):
                    raise UserError(
                        f"{self.params.where(f'methods.{variant}.method')}: "
                        f"{variant} is a {method_class(first)} recipe, which cannot change.",
                        "Remove `method`, or define a method under another name.",
                    )
            return method_class(first)
        kind = self.params.block(f"methods.{first}").get("method")
        if kind is None:
            raise UserError(
                f"{self.params.where(f'methods.{first}')} has neither `like` nor `method`.",
                f"Add `like: ` and the method that it is a variant of ({', '.join(published('methods'))}), "
                "or `method: ` and a class of recipe.",
            )
        block = {"method": kind}
        if not names_a_class(OutsideRecipe, block):
            if kind not in CLASSES:
                raise UserError(
                    f"{self.params.label}: methods.{first}: `method` must be one of {', '.join(CLASSES)}, or "
                    f"a class `package.module:Class`, got {str(kind)!r}.",
                    "Correct `method`.",
                )
            return str(kind)
        return str(self._outside(OutsideRecipe, f"methods.{first}", block).model_fields["method"].default)

    def _outside(self, kind: type[Kind], key: str, block: Mapping[str, Any]) -> type[Kind]:
        """The settings of the part of a user that block `key` names."""
        try:
            with trusted():
                return outside(kind, block)
        except ValidationError as error:
            raise explained(error, [(Place.of(self.params, key), block)], block) from None


def _dataset_block(params: Params, key: str) -> DatasetBlock:
    """Block `datasets.<d>` of params.yaml; empty if it is missing. Raises UserError for an unknown key."""
    try:
        return DatasetBlock.parse(params.block(key))
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
