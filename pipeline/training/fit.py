"""A training without the graph: images in memory or in files -> a model in a folder.

    trained = unseen.train(images, labels, "ms", loss=MyLoss(), output="runs/mine")
    unseen.evaluate(trained.embed(test_images), test_labels)

The training is that of stage `train`: the same shards, batches, validation and bytes. The folder has
shards/, model/, history.csv, log.json and settings.json; state/ exists while a training is not finished.
"""

import inspect
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, UInt8
from PIL import Image
from pydantic import ValidationError
from torch import Tensor, nn

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import dotted
from unseen.config.place import Place
from unseen.data.ingest.collection import Collection, Content, Picture
from unseen.data.ingest.ingest import write
from unseen.data.ingest.prepare import prepare
from unseen.data.ingest.settings import IngestSettings
from unseen.data.loader import EvalLoader
from unseen.data.shards import Shards
from unseen.losses.own import own_loss
from unseen.methods.artifact import LoadedModel, load_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import create_directory, write_json
from unseen.runtime.sealed import read_sealed_csv
from unseen.training import loop
from unseen.training.export.model import device, embed_images
from unseen.training.job import Job, Outputs
from unseen.training.state import differences

BATCH = 64  # images that are embedded at once


@dataclass(frozen=True)
class Trained:
    """A finished training. history: the rows of history.csv."""

    folder: Path
    history: list[dict[str, float]]

    @cached_property
    def model(self) -> LoadedModel:
        """The network with the weights that the protocol of the recipe selects, and its recipe."""
        return load_method(self.folder / "model")

    @property
    def method(self) -> Method:
        """The module that embeds normalised images, in eval mode."""
        return self.model.method

    def embed(self, images: Any) -> Float32[np.ndarray, "N D"]:
        """Unit vectors of images, of the kinds that `train` takes."""
        rows, threads = np.arange(len(images)), loader_threads_of(1)
        loader = EvalLoader(_Images(images), rows, self.model.recipe.input, BATCH, threads)
        return embed_images(self.method, loader, device()).embedding


def train(
    images: Any,
    labels: Any = None,
    recipe: str | Mapping[str, Any] | Recipe = "ms",
    *,
    loss: nn.Module | None = None,
    output: str | Path,
    seed: int = 0,
) -> Trained:
    """Trains a network on N images and returns it. The same call again continues an interrupted training, and
    returns a finished one.

    images: pixels (N, H, W, 3) uint8, or a sequence of paths, of Pillow images or of pixels (H, W, 3); or a
    torch Dataset of such images with labels, without random augmentation, which the recipe does.
    labels: a number or a name for each image; None: those of the Dataset.
    recipe: a published method (docs/library.md), with the settings for images of your own; or its changes, as
    in params.yaml: {"like": "ms", "dim": 128, "training.iterations": 500}.
    loss: replaces that of the recipe; loss(embeddings, labels) of unit vectors (B, D) and class numbers (B,).
    output: the folder. seed: of the network, the batches and the classes that are held out for validation.

    Raises UserError for wrong sizes and types, classes of one image each, a wrong recipe, a folder of
    another training, and as stage `train` does.
    """
    output, chosen = Path(output).resolve(), _recipe(recipe, loss)
    create_directory(output)
    settings = {"recipe": chosen.model_dump(mode="json"), "seed": seed}
    _write_shards(images, _names(images, labels), output, settings)
    outputs = Outputs(output / "model", output / "history.csv", output / "log.json")
    job = Job(
        dataset="images",
        method=chosen.method,
        seed=seed,
        recipe=chosen,
        root=Path.cwd(),
        shards=output / "shards",
        state=output / "state",
        outputs=outputs,
        code=version("unseen"),
    )
    if not outputs.log.is_file():  # the last file that a training writes
        loop.train(job, 0, 1, device())
    rows = read_sealed_csv(outputs.history, "Train into another folder.")
    return Trained(output, [{name: float(value) for name, value in row.items() if value} for row in rows])


def _recipe(recipe: str | Mapping[str, Any] | Recipe, loss: nn.Module | None) -> Recipe:
    """The recipe with the loss."""
    if isinstance(recipe, (str, Mapping)):
        changes = {"like": recipe} if isinstance(recipe, str) else dict(recipe)
        layers = Definitions(Params(text="")).layers("folder", changes.pop("like", "ms"))
        recipe = layers.plus(dotted(Place("The recipe of unseen.train"), changes)).recipe()
    if loss is None:
        return recipe
    takes = inspect.signature(loss.forward).parameters
    if getattr(recipe, "memory", None) is not None and "references" not in takes:
        raise UserError(
            f"{type(loss).__name__} takes no references, and the recipe has a cross-batch memory.",
            "Set memory to None in the recipe, or derive the loss from unseen.losses.pairs.PairLoss.",
        )
    try:
        return parse_recipe(recipe.model_dump(mode="json") | {"loss": own_loss(loss)})
    except (ValidationError, ValueError) as error:
        raise UserError(
            f"The recipe does not take the loss {type(loss).__name__}: {error}.",
            "Choose a method with one loss, such as ms.",
        ) from error


def _require_same(output: Path, settings: dict[str, Any]) -> None:
    """Raises UserError if the folder is of a training with another value of one of `settings`."""
    file = output / "settings.json"
    if file.is_file():
        earlier = json.loads(file.read_text(encoding="utf-8"))
        if changed := differences({key: earlier.get(key) for key in settings}, settings):
            raise UserError(
                f"{output} is of a training that differs in {', '.join(changed)}.",
                "Choose another folder, or remove this one.",
            )


def _names(images: Any, labels: Any) -> list[str]:
    """The class of each image as a name. Numbers keep their order."""
    if labels is None:
        labels = getattr(images, "targets", None)
        labels = [images[row][1] for row in range(len(images))] if labels is None else labels
    values = np.asarray(labels)
    if values.shape != (len(images),) or not len(images):
        raise UserError(
            f"There are {len(images)} images and labels of shape {values.shape}.",
            "Give one label for each image.",
        )
    if values.dtype.kind not in "iuU":
        raise UserError(f"Labels have the type {values.dtype}.", "Use whole numbers or strings.")
    names = values.astype(str)
    if values.dtype.kind != "U":
        names = np.char.zfill(names, max(map(len, names)))
    if max(Counter(names.tolist()).values()) < 2:
        raise UserError(
            f"Each of the {len(names)} images has a class of its own.",
            "A loss needs pairs of the same class: give two images or more of each class.",
        )
    return names.tolist()


def _write_shards(images: Any, names: list[str], output: Path, settings: dict[str, Any]) -> None:
    """Writes settings.json and shards/. Raises UserError if the folder is of another training."""
    _require_same(output, settings)
    are_paths = isinstance(images[0], (str, Path))
    sources = [str(images[row]) if are_paths else f"{row:09d}" for row in range(len(names))]
    rows = {source: row for row, source in enumerate(sources)}
    if len(rows) < len(sources):
        raise UserError("A path is listed twice.", "List each file once.")
    pictures = [Picture(source, name, "train") for source, name in zip(sources, names, strict=True)]
    read = _Images(images).read
    collection = Collection("images", pictures, lambda source: read(rows[source]), by_class=False)
    fresh, shards = output / "shards.new", output / "shards"
    try:
        # one process: others would run the main program of the caller again
        write(collection, collection.in_order(), IngestSettings(), fresh, "images", processes=1)
        settings = settings | {"shards": Shards(fresh).fingerprint}
        _require_same(output, settings)
        write_json(output / "settings.json", settings)
        if not shards.is_dir():
            fresh.replace(shards)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@dataclass(frozen=True)
class _Images:
    """Images of a program by number."""

    images: Any

    def read(self, row: int) -> Content:
        """File content, or pixels (H, W, 3). Raises UserError for another object."""
        image = self.images[row]
        if isinstance(image, (tuple, list)):  # of a Dataset, with its label
            image = image[0]
        if isinstance(image, (str, Path)):
            return Path(image).read_bytes()
        if isinstance(image, Tensor):
            image = image.permute(1, 2, 0).contiguous().numpy() if image.ndim == 3 else image.numpy()
        pixels = np.asarray(image.convert("RGB") if isinstance(image, Image.Image) else image)
        if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or pixels.shape[2:] not in ((), (3,)):
            raise UserError(
                f"Image {row} is an array of shape {pixels.shape} and type {pixels.dtype}.",
                "Give pixels (H, W, 3) as uint8, before any normalisation.",
            )
        return pixels

    def image(self, row: int) -> UInt8[np.ndarray, "size"]:
        try:
            return np.frombuffer(prepare(self.read(row), None, 100).image, np.uint8)
        except (OSError, ValueError) as error:
            raise self.undecodable(row, str(error)) from error

    def box(self, row: int) -> None:
        return None

    def undecodable(self, row: int, reason: str) -> UserError:
        return UserError(f"Image {row} cannot be decoded: {reason}.", "Replace it, or leave it out.")
