"""The classes that a model was trained on: `training_classes.json` in its directory.

A catalog measures its rate of false matches on products that the model was not trained on (unknown.py): the
photos of a class that the model was trained on resemble other classes less than those of a new one do.
"""

import json
from collections.abc import Collection
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json

FILE = "training_classes.json"
NETWORK = "network.json"  # the description of a published network
_TRAINED = ("linear", "adapted")  # parts of a published network, by their names in network.json


def write_training_classes(model: Path, names: Collection[str]) -> None:
    """Writes the names of the training classes into the directory of a model."""
    write_json(model / FILE, {"classes": sorted(names)})


def training_classes(model: Path) -> frozenset[str] | None:
    """The names of the training classes of a model; empty for a published network, None if they are unknown.

    They are those of `training_classes.json`. For a model of the graph, data/models/DATASET/METHOD/SEED, they
    are the classes of split `train` in the shards of the same project, with those that chose the iterate.

    Raises UserError for a damaged file.
    """
    path = model / FILE
    if path.is_file():
        try:
            return frozenset(map(str, json.loads(path.read_text(encoding="utf-8"))["classes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is damaged: {type(error).__name__}: {error}.",
                "Write the model again: `unseen ladder` for a model of it, `unseen index` for a catalog.",
            ) from error
    if is_network(model):
        about = json.loads((model / NETWORK).read_text(encoding="utf-8"))
        return None if any(part in about for part in _TRAINED) else frozenset()
    *_, top, dataset, _, _ = ("", "", "", "", *model.resolve().parts)
    shards = model.resolve().parents[3] / "shards" / dataset if top == "models" else None
    if shards is None or not (shards / "manifest.json").is_file():
        return None
    from unseen.data.shards import Shards  # models of the graph alone need it

    data = Shards(shards)
    return frozenset(data.class_names[label] for label in set(data.labels[data.rows("train")].tolist()))


def is_network(directory: Path) -> bool:
    """Whether a directory contains a published network, otherwise a trained method."""
    return (directory / NETWORK).exists()
