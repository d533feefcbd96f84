"""The published recipes: pipeline/recipes/methods/<m>.yaml and pipeline/recipes/datasets/<d>.yaml.

A file contains a recipe and changes of it: for some data sets in the file of a method, for some methods in
the file of a data set. It may extend another file, its `base`. A file whose name starts with `_` is only a
base. The chain of a file is the list of its bases and itself, the first base first. A change for a base
applies to all files that extend it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field

from unseen.config.document import Document
from unseen.config.layers import Patch
from unseen.config.place import Place
from unseen.evaluation.settings import EvaluateSettings, Ranks
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

ROOT = Path(__file__).resolve().parents[1] / "recipes"
Kind = Literal["methods", "datasets"]
File = TypeVar("File", bound=Strict)


class Change(Strict):
    """What `recipe` changes for some data sets or methods."""

    names: tuple[str, ...] = Field(alias="for", min_length=1)
    recipe: dict[str, Any]


class SourceChange(Strict):
    """What `recipe` changes if params.yaml sets the fields `source` of the data set to these values."""

    source: dict[str, Any] = Field(min_length=1)
    recipe: dict[str, Any]


class MethodFile(Strict):
    """The published recipe of a method: the setting of its paper for CUB."""

    base: str | None = None
    # a published variant: all layers of that method, and this recipe after those of the data sets
    like: str | None = None
    method: str | None = None  # the class of recipe in methods/settings.py; None: that of the base
    recipe: dict[str, Any] = {}
    changes: tuple[Change, ...] = ()  # of the paper, for other data sets
    sweep: dict[str, Any] | None = None  # as block `sweep.<m>` of params.yaml


class DatasetFile(Strict):
    """The source of a data set, its K of Recall@K, and its changes of the recipes of all methods and of some
    methods."""

    base: str | None = None
    source: dict[str, Any] = {}
    recall_at: Ranks | None = None  # the K of Recall@K in its published tables
    recipe: dict[str, Any] = {}
    changes: tuple[Change, ...] = ()
    sources: tuple[SourceChange, ...] = ()  # override `changes`
    small: bool = False  # a set with small networks of its own, also in rows of studies (study_row.py)


def published(kind: Kind) -> list[str]:
    """The names of the published methods or data sets."""
    return list(_published(kind))


@cache
def _published(kind: Kind) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (ROOT / kind).glob("*.yaml") if not path.stem.startswith("_")))


@cache
def document(kind: Kind, name: str) -> Document:
    """The YAML of a published file."""
    return Document(ROOT / kind / f"{name}.yaml", f"pipeline/recipes/{kind}/{name}.yaml")


@cache
def method_file(name: str) -> MethodFile:
    """A published method. Raises UserError for a file with an unknown key."""
    return _parsed("methods", name, MethodFile)


@cache
def dataset_file(name: str) -> DatasetFile:
    """A published data set. Raises UserError for a file with an unknown key."""
    return _parsed("datasets", name, DatasetFile)


def chain(kind: Kind, name: str) -> tuple[str, ...]:
    """The bases of a published file, the first one first, and the file itself."""
    base = (method_file if kind == "methods" else dataset_file)(name).base
    return (*(chain(kind, base) if base else ()), name)


def method_class(name: str) -> str:
    """The class of recipe of a published method: that of its file, of its base, or of the method that it is
    like."""
    root = published_family(name)[0]
    classes = [file.method for file in map(method_file, chain("methods", root)) if file.method]
    if not classes:
        raise UserError(
            f"pipeline/recipes/methods/{name}.yaml: `method` is missing.", "Add the class of recipe."
        )
    return classes[-1]


def published_family(name: str) -> tuple[str, ...]:
    """A published method and the methods that `like` leads to, `name` last."""
    parent = method_file(name).like
    return (*(published_family(parent) if parent else ()), name)


def published_patches(
    family: Sequence[str], dataset: str | None = None, source: Mapping[str, Any] | None = None
) -> Iterator[Patch]:
    """The published layers of a recipe, the lowest first.

    family: of the method (published_family); may be empty. dataset: the kind of the data set, published or
    not; None: the setting of the paper alone. source: of the data set.
    """
    methods = chain("methods", family[0]) if family else ()
    sets = chain("datasets", dataset) if dataset in published("datasets") else ()
    for name in methods:
        yield Patch(_place("methods", name), method_file(name).recipe)
    for name in sets:
        yield Patch(_place("datasets", name), dataset_file(name).recipe)
    for name in methods:
        yield from _changes("methods", name, [dataset])
    for name in sets:
        yield from _changes("datasets", name, methods)
    for name in sets:
        for position, change in enumerate(dataset_file(name).sources):
            if all((source or {}).get(key) == value for key, value in change.source.items()):
                yield Patch(_place("datasets", name, f"sources.{position}.recipe"), change.recipe)
    for name in family[1:]:
        yield Patch(_place("methods", name), method_file(name).recipe)


def source_of(name: str) -> dict[str, Any]:
    """The published source of a data set."""
    source: dict[str, Any] = {}
    for part in map(dataset_file, chain("datasets", name)):
        source = part.source or source
    return source


def recall_at_of(name: str) -> Ranks:
    """The published K of Recall@K of a data set, or the default for a set without published tables."""
    lists = [file.recall_at for file in map(dataset_file, chain("datasets", name)) if file.recall_at]
    return lists[-1] if lists else EvaluateSettings().recall_at


def sweep_of(name: str) -> dict[str, Any] | None:
    """The published sweep of a method: that of its file, of its base, or of the method that it is like."""
    root = published_family(name)[0]
    sweeps = [file.sweep for file in map(method_file, chain("methods", root)) if file.sweep is not None]
    return sweeps[-1] if sweeps else None


def _changes(kind: Kind, name: str, targets: Sequence[str | None]) -> Iterator[Patch]:
    """The changes in a published file for any of `targets`, in the order of the targets, then of the file."""
    for target in targets:
        for position, change in enumerate((method_file if kind == "methods" else dataset_file)(name).changes):
            if target in change.names:
                yield Patch(_place(kind, name, f"changes.{position}.recipe"), change.recipe)


def _place(kind: Kind, name: str, key: str = "recipe") -> Place:
    return Place.of(document(kind, name), key)


def _parsed(kind: Kind, name: str, model: type[File]) -> File:
    return document(kind, name).parsed(model, "Correct the published recipe.")
