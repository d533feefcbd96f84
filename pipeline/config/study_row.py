"""A row of a study as a method of the run: a published method and changes of its recipe. A data set of a
study as a data set of the run.

Layers of its recipe: those of the method in pipeline/recipes, then the row. Changes of a user in params.yaml
are not layers of it, except the definition of a method that only params.yaml has. On a small set
(pipeline/recipes/datasets, `small: true`) a row keeps the network, images, dimensions, batch, optimizer and
schedule of the set; its changes of these fields are left out. Weights of the network of the set stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from unseen.config.document import Document
from unseen.config.layers import Patch, dotted
from unseen.config.place import Place
from unseen.config.recipe_files import chain, dataset_file, method_file, published
from unseen.config.stages import RowSearch
from unseen.evaluation.settings import Reduce

Protocol = Literal["selected", "published", "refit"]
# the first step of the fields that a small set defines itself
SIZES = ("backbone", "input", "dim", "batch", "optimizer", "schedule", "training", "memory")
_TRANSFORMERS = ("deit_", "vit_")
_TRANSFORMER_METHOD = "_irt"  # its changes of a small set contain the small transformer


@dataclass(frozen=True)
class StudyRow:
    """A row of a study."""

    document: Document  # the file of the study
    study: str
    like: str  # the method
    recipe: dict[str, Any]  # dotted field -> value
    protocol: Protocol
    kept: tuple[str, ...] | None = ()  # fields that a small set does not replace; None: all
    reduce: Reduce | None = None  # evaluate.reduce of this row
    analyze_reduce: Reduce | None = None  # analyze.reduce of this row
    search: RowSearch | None = None  # the search of every row of the study

    def patch(self, kind: str) -> Patch:
        """The changes of the recipe on a data set whose source is of this kind."""
        small = self.kept is not None and is_small(kind)
        fields = {
            field: value
            for field, value in self.recipe.items()
            if not small or field in (self.kept or ()) or not replaced_by_small(field)
        }
        if small and "backbone.name" in self.recipe and "backbone.name" not in fields:
            fields = stand_in(kind, str(self.recipe["backbone.name"])) | fields
            if fields["backbone.name"] == self.recipe["backbone.name"]:
                fields |= {key: self.recipe[key] for key in self.recipe.keys() & {"backbone.checkpoint"}}
        return dotted(Place.of(self.document, self.study), fields | self._training(kind))

    def _training(self, kind: str) -> dict[str, Any]:
        """The protocol. A landmark set defines its validation images itself. A schedule that follows
        validation (ProxyNCA++) needs `refit` where the paper trains on all classes. A row that sets
        `training.protocol` itself has that protocol."""
        protocol = self.protocol
        if protocol == "published":
            if kind == "landmarks":
                protocol = "selected"
            elif not is_small(kind) and _follows_validation(self.like):
                protocol = "refit"
        protocol = self.recipe.get("training.protocol", protocol)
        fields: dict[str, Any] = {"training.protocol": protocol}
        return fields | {"training.patience": None} if protocol == "published" else fields


@dataclass(frozen=True)
class StudySet:
    """A data set with the source settings of a study: another data set in the run than the one it is like."""

    document: Document  # the file of the study
    key: str  # of the settings in that file
    like: str  # the data set
    source: dict[str, Any]


def replaced_by_small(field: str) -> bool:
    """Whether a small set defines this field itself."""
    return field.partition(".")[0] in SIZES


def is_small(kind: str) -> bool:
    """Whether the sets of this kind have small networks of their own."""
    return kind in published("datasets") and any(dataset_file(name).small for name in chain("datasets", kind))


def stand_in(kind: str, network: str) -> dict[str, Any]:
    """The fields of the small network in place of `network` on a small set: a transformer for a transformer,
    else the network of the set."""
    files = [dataset_file(name) for name in chain("datasets", kind)]
    recipe: dict[str, Any] = {}
    for file in files:
        recipe |= file.recipe
    backbone = recipe["backbone"]
    if network.startswith(_TRANSFORMERS) and backbone["name"] != "token_embedding":
        backbone = {}
        for change in (change for file in files for change in file.changes):
            if _TRANSFORMER_METHOD in change.names:
                backbone |= change.recipe.get("backbone", {})
    return {f"backbone.{key}": value for key, value in backbone.items()}


def _follows_validation(method: str) -> bool:
    """Whether the published schedule of a method is `plateau`."""
    names: Iterable[str] = [method]
    if method in published("methods"):
        names = chain("methods", method_file(method).like or method)
    return any(
        method_file(name).recipe.get("schedule", {}).get("name") == "plateau"
        for name in names
        if name in published("methods")
    )
