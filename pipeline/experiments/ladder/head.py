"""The rung `head`: the pooling, projection and loss of a method, trained on the cached maps of a frozen
network.

The recipe is that of pipeline/frozen/head.py with at most DIM dimensions. Its last layer starts at the
principal directions of what it reads, which are the prior, as the identity is for `linear`.
"""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

from unseen.config.layers import Layers, dotted
from unseen.config.place import Place
from unseen.config.recipe_files import method_class
from unseen.frozen.head import head
from unseen.frozen.head_training import embedded, train
from unseen.frozen.maps import Maps, Trunk, maps_of, trunk
from unseen.frozen.network import Network
from unseen.frozen.pictures import Listed
from unseen.frozen.trained import Task, Trained
from unseen.methods.artifact import save_recipe, save_weights
from unseen.methods.settings import Recipe

LENGTHS = (50, 100, 200, 400)  # steps among which validation chooses
DIM = 384  # the same as in pipeline/recipes/datasets/folder.yaml


class HeadInputs(NamedTuple):
    """A frozen network, its maps of all photos, and the layers of the recipe of a head on it."""

    trunk: Trunk
    maps: Maps
    layers: Layers
    seconds: float  # of CPU, for the maps


def require_head(method: str, network: Network, directory: Path) -> None:
    """Raises UserError for an unknown method, a network without feature maps, and a head that does not fit
    it. Call it before long work."""
    layers_of_head(method, trunk(network, directory, _stages(method)), 2).recipe()


def inputs(
    method: str,
    network: Network,
    photos: Path,
    pictures: Listed,
    directory: Path,
    model: Path,
    classes: int,
) -> HeadInputs:
    """The maps of all photos; those in `directory` are used again. model: receives the network. classes: the
    smallest number of training classes."""
    begin = time.process_time()
    frozen = trunk(network, model, _stages(method))
    paths = [photos / path for path in pictures.paths]
    maps = maps_of(paths, pictures.sha256, frozen, directory, f"ladder: maps of {frozen.input.size} pixels")
    return HeadInputs(frozen, maps, layers_of_head(method, frozen, classes), time.process_time() - begin)


def layers_of_head(method: str, frozen: Trunk, classes: int) -> Layers:
    """The layers of a head on a network. classes: of a batch, at most 8."""
    width = frozen.backbone.cls_channels or frozen.backbone.channels[-1]
    fields = {
        "batch.classes": min(8, classes),
        "embedding.dim" if method_class(method) == "crt" else "dim": min(DIM, width),
        "training.iterations": LENGTHS[-1],
    }
    return head(method, frozen, fields)


class HeadTrainer:
    """The rung `head` for the maps of all photos."""

    name = "head"
    lengths: tuple[int, ...] = LENGTHS

    def __init__(self, given: HeadInputs, seed: int) -> None:
        self._given, self._seed, self.seconds = given, seed, given.seconds
        self.digest = given.trunk.digest

    def recipe(self, photos: int, steps: int) -> Recipe:
        """As Trainer.recipe."""
        steps_of_run = dotted(Place("A run of the ladder"), {"training.iterations": steps})
        return self._given.layers.plus(steps_of_run).recipe()

    def train(self, task: Task) -> list[Trained]:
        """As Trainer.train; `parameters` is the method after the last number of steps."""
        maps, (rows, labels, lengths, searched) = self._given.maps, task
        recipe = self.recipe(len(rows), lengths[-1])
        return [
            Trained(each.steps, embedded(each.method, maps, searched), each.method)
            for each in train(recipe, maps, rows, labels, lengths, self._seed, principal=True)
        ]

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """As Trainer.write; network and head become a trained model (pipeline/methods/artifact.py)."""
        method, frozen = trained.parameters, self._given.trunk
        method.backbone = frozen.backbone
        written = dotted(Place("The model of a ladder"), {"backbone.checkpoint": None})
        recipe = self._given.layers.plus(written).recipe()
        shutil.rmtree(model)
        model.mkdir(parents=True)
        save_weights(model / "weights.safetensors", method)
        save_recipe(model / "recipe.json", recipe, "photos", self._seed, classes, photos)


def _stages(method: str) -> tuple[int, ...]:
    """The maps that a method reads. Raises UserError for an unknown method."""
    return head(method).recipe().backbone.stages
