"""params.yaml files for tests."""

import json
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import Fields, dotted
from unseen.config.place import Place
from unseen.methods.settings import Recipe
from unseen.runtime.stage import ROOT


def write(folder: Path, content: dict[str, Any]) -> Params:
    """params.yaml in `folder` with this content (JSON is YAML)."""
    path = folder / "params.yaml"
    path.write_text(json.dumps(content), encoding="utf-8")
    return Params(path)


def project(folder: Path, changes: dict[str, Any] | None = None) -> Params:
    """The project's params.yaml in `folder`, with `changes` by dotted key."""
    content = YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for key, value in (changes or {}).items():
        *parents, last = key.split(".")
        node = content
        for parent in parents:
            if not isinstance(node.get(parent), dict):
                node[parent] = {}
            node = node[parent]
        node[last] = value
    return write(folder, content)


def resolve(params: Params | Definitions, dataset: str, method: str, changes: Fields | None = None) -> Recipe:
    """The recipe of a method on a data set, with `changes` above all layers."""
    known = params if isinstance(params, Definitions) else Definitions(params)
    return known.layers(dataset, method).plus(dotted(Place("changes"), changes or {})).recipe()
