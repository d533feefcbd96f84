"""A data set of a few drawn images and recipes small enough to train on it in a second."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pipeline.config import Recipe, parse_recipe
from pipeline.data.shards import ShardWriter
from pipeline.training.job import Job, job_of

CLASSES, IMAGES, SIDE = 10, 6, 32  # train classes, images of each, crop

_SMALL: dict[str, Any] = {
    "backbone": {"name": "test_resnet", "pretrained": False, "batch_norm": "batch"},
    "input": {"size": SIDE, "resize": SIDE, "crop_scale": [0.5, 1.0]},
    "batch": {"classes": 3, "images_per_class": 4},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3, "weight_decay": 1e-2},
    "training": {"iterations": 12, "validate_every": 5, "checkpoint_every": 2, "precision": "float32"},
}
_METHODS: dict[str, dict[str, Any]] = {
    "baseline": {"dim": 8},
    "crt": {
        "embedding": {"prototypes": 4, "dim": 8, "hidden": 6, "loss_weight": 1.0},
        "auxiliary": {"prototypes": 5, "dim": 12, "hidden": 6, "loss_weight": 0.1},
    },
    "multihead": {"dim": 16, "backbone": {"stages": [-2, -1]}},
    "gsp": {"dim": 8, "pooling": {"name": "gsp", "prototypes": 4, "warmup": 1, "initialization_memory": 48}, "zero_shot": {"dim": 6}},
    "irt": {"backbone": {"name": "test_vit", "arguments": {"img_size": SIDE, "patch_size": 8}}, "memory": {"size": 36, "with_batch": False}},
}
METHODS = tuple(_METHODS)


def recipe(method: str, **blocks: Any) -> Recipe:
    """The small recipe of a method; `blocks` are laid over it, one level deep."""
    value: dict[str, Any] = {"method": method}
    for layer in (_SMALL, _METHODS[method], blocks):
        for key, block in layer.items():
            both = isinstance(value.get(key), dict) and isinstance(block, dict)
            renamed = both and key != "backbone" and block.get("name", value[key].get("name")) != value[key].get("name")
            value[key] = {**value[key], **block} if both and not renamed else block
    return parse_recipe(value)


def job(root: Path, recipe: Recipe, seed: int = 0) -> Job:
    """The job of `recipe` on data set `tiny` under `root`."""
    return job_of("tiny", recipe.method, seed, recipe, root, threads=1, loader_threads=1)


def write_tiny_set(root: Path, classes: int = CLASSES, images: int = IMAGES) -> None:
    """Shards of `classes` train and 2 test classes: stripes whose colour and direction say the class, with noise."""
    directory = root / "data/shards/tiny"
    directory.mkdir(parents=True)
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (classes + 2, 3))
    with ShardWriter(directory, [f"class {label}" for label in range(classes + 2)], shard_bytes=2**20) as writer:
        for label in range(classes + 2):
            for index in range(images):
                across, down = np.meshgrid(np.arange(40), np.arange(44))
                stripes = ((across * (label % 3) + down * (label % 4) + index) % 8 < 4)[:, :, None]
                picture = np.where(stripes, colours[label], 128) + generator.normal(0, 90, (44, 40, 3))
                encoded = io.BytesIO()
                Image.fromarray(picture.clip(0, 255).astype(np.uint8)).save(encoded, "PNG")
                split = "train" if label < classes else "test"
                writer.add(encoded.getvalue(), label, split, f"class {label}/{index}.png", width=40, height=44)
        writer.finish({"dataset": "tiny"})
