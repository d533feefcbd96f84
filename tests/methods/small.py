"""Small recipes and batches that train within a second."""

from typing import Any, get_args

import torch
from torch import Tensor

from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.settings import Strict

SIDE, CLASSES, SAMPLES = 32, 6, 40

_COMMON: dict[str, Any] = {
    "backbone": {
        "name": "test_resnet",
        "pretrained": False,
        "batch_norm": "batch",
        "arguments": {"output_stride": 16},
    },
    "input": {"size": SIDE, "resize": SIDE},
    "batch": {"classes": 4, "images_per_class": 3},
    "training": {"precision": "float32"},
}
OF_METHODS: dict[str, dict[str, Any]] = {
    "baseline": {"dim": 8},
    "crt": {
        "embedding": {"prototypes": 4, "dim": 8, "hidden": 6, "loss_weight": 1.0},
        "auxiliary": {"prototypes": 5, "dim": 12, "hidden": 6, "loss_weight": 0.1},
    },
    "multihead": {"dim": 16, "backbone": {"stages": [-2, -1]}},
    "gsp": {
        "dim": 8,
        "pooling": {"name": "gsp", "prototypes": 4, "initialization_memory": 24},
        "zero_shot": {"dim": 6},
    },
    "irt": {
        "backbone": {"name": "test_vit", "arguments": {"img_size": SIDE, "patch_size": 8}},
        "memory": {"size": 20, "with_batch": False},
    },
}
METHODS = tuple(OF_METHODS)


def recipe(method: str, **blocks: Any) -> Recipe:
    """The small recipe of a method. `blocks` override it one level deep; a block of None replaces it."""
    return layered(method, _COMMON, OF_METHODS[method], blocks)


def layered(method: str, *layers: dict[str, Any]) -> Recipe:
    """A recipe of blocks. Each layer overrides the previous ones one level deep; a block with another name
    replaces the previous block."""
    value: dict[str, Any] = {"method": method}
    for layer in layers:
        for key, block in layer.items():
            are_blocks = isinstance(value.get(key), dict) and isinstance(block, dict)
            renamed = (
                are_blocks
                and key != "backbone"
                and block.get("name", value[key].get("name")) != value[key].get("name")
            )
            value[key] = {**value[key], **block} if are_blocks and not renamed else block
    return parse_recipe(value)


def batch(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """12 images of 4 of the 6 classes. An image is the tint of its class with noise."""
    generator = torch.Generator().manual_seed(seed)
    tints = torch.randn(CLASSES, 3, SIDE // 8, SIDE // 8, generator=torch.Generator().manual_seed(99))
    labels = torch.randperm(CLASSES, generator=generator)[:4].repeat_interleave(3)
    images = torch.nn.functional.interpolate(tints[labels], scale_factor=8) + torch.randn(
        12, 3, SIDE, SIDE, generator=generator
    )
    return images.to(dtype), labels


def places(labels: Tensor) -> Tensor:
    """Positions of the images of `batch` among the training images."""
    return 3 * labels + torch.arange(12) % 3


def parts_of(union: Any) -> dict[str, type[Strict]]:
    """The parts of a union of settings, by name."""
    return {kind.model_fields["name"].default: kind for kind in get_args(union)}
