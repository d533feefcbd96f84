"""A data set of a few drawn images, and recipes that train on it within a second."""

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.methods.small import OF_METHODS, layered
from unseen.config.stages import TrainSettings
from unseen.data.shard_writer import ShardWriter
from unseen.methods.settings import Recipe
from unseen.training import loop, run
from unseen.training.job import Job, job_of

CLASSES, IMAGES, SIDE = 10, 6, 32  # train classes, images of each, crop

_SMALL: dict[str, Any] = {
    "backbone": {"name": "test_resnet", "pretrained": False, "batch_norm": "batch"},
    "input": {"size": SIDE, "resize": SIDE, "crop_scale": [0.5, 1.0]},
    "batch": {"classes": 3, "images_per_class": 4},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3, "weight_decay": 1e-2},
    "training": {"iterations": 12, "validate_every": 5, "precision": "float32", "threads": 1},
}
_OF_METHODS: dict[str, dict[str, Any]] = {
    "gsp": {"pooling": {"name": "gsp", "prototypes": 4, "warmup": 1, "initialization_memory": 48}},
    "irt": {"memory": {"size": 36, "with_batch": False}},
}


class Killed(Exception):
    """Replaces a signal that kills the process."""


@contextlib.contextmanager
def killed_at(step: int) -> Iterator[None]:
    """A training in the block is killed before it takes step `step`."""
    original = loop.train_step

    def train_step(learner: Any, batch: Any, *arguments: Any) -> Any:
        if batch.step == step:
            raise Killed
        return original(learner, batch, *arguments)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop, "train_step", train_step)
        yield


def recipe(method: str, **blocks: Any) -> Recipe:
    """The small recipe of a method. `blocks` override it one level deep."""
    return layered(method, _SMALL, OF_METHODS[method], _OF_METHODS.get(method, {}), blocks)


def job(root: Path, recipe: Recipe, seed: int = 0) -> Job:
    """The job of `recipe` on data set `tiny` under `root`."""
    machine = TrainSettings(loader_threads=1, checkpoint_every=2)
    return job_of("tiny", recipe.method, seed, recipe, root, machine)


def trained(root: Path, recipe: Recipe) -> Job:
    """A finished training of `recipe` on data set `tiny` under `root`."""
    finished = job(root, recipe)
    loop.train(finished, 0, 1, torch.device("cpu"))
    return finished


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Trainings that begin in this process compute in float64.

    An optimizer enlarges the rounding of float32, which differs between numbers of workers and processors.
    """
    initial = run.initial_method

    def in_double_precision(*arguments: Any) -> Any:
        return initial(*arguments).double()

    run.initial_method = in_double_precision
    try:
        yield
    finally:
        run.initial_method = initial


def write_tiny_set(root: Path, classes: int = CLASSES, images: int = IMAGES) -> None:
    """Shards of `classes` train and 2 test classes: stripes with noise, whose colour and direction depend on
    the class."""
    directory = root / "data/shards/tiny"
    directory.mkdir(parents=True)
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (classes + 2, 3))
    with ShardWriter(
        directory, [f"class {label}" for label in range(classes + 2)], shard_bytes=2**20
    ) as writer:
        for label in range(classes + 2):
            for index in range(images):
                across, down = np.meshgrid(np.arange(40), np.arange(44))
                stripes = ((across * (label % 3) + down * (label % 4) + index) % 8 < 4)[:, :, None]
                picture = np.where(stripes, colours[label], 128) + generator.normal(0, 90, (44, 40, 3))
                encoded = io.BytesIO()
                Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(encoded, "PNG")
                split = "train" if label < classes else "test"
                writer.add(
                    encoded.getvalue(), label, split, f"class {label}/{index}.png", width=40, height=44
                )
        writer.finish({"dataset": "tiny"})


def output_bytes(trained: Job) -> dict[str, bytes]:
    """The bytes of all files that another stage reads."""
    assert trained.outputs is not None
    files = [*sorted(trained.outputs.model.iterdir()), trained.outputs.history]
    return {path.name: path.read_bytes() for path in files}


def log_of(trained: Job) -> dict[str, Any]:
    assert trained.outputs is not None
    log: dict[str, Any] = json.loads(trained.outputs.log.read_text())
    return log


def states_of(trained: Job) -> list[Path]:
    directory = Path(trained.state or "") / "tiny" / trained.method
    return sorted(directory.iterdir()) if directory.exists() else []
