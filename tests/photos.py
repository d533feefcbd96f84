"""A folder of pictures and a small model with random weights."""

import io
import os
import time
from pathlib import Path

import numpy as np
from PIL import Image

from unseen.methods.artifact import save_recipe, save_weights
from unseen.methods.build import initial_method
from unseen.methods.settings import parse_recipe

COUNT, SIDE = 11, 32


def picture(seed: int, form: str = "JPEG") -> bytes:
    blocks = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(np.kron(blocks, np.ones((8, 8, 1), np.uint8))).save(stream, form)
    return stream.getvalue()


def save_model(directory: Path, seed: int, **changes: object) -> Path:
    """`changes` replace blocks of the recipe."""
    settings = parse_recipe(
        {
            "method": "baseline",
            "dim": 8,
            "backbone": {"name": "test_resnet", "pretrained": False, "batch_norm": "batch"},
            "input": {"size": SIDE, "resize": 36},
            **changes,
        }
    )
    directory.mkdir(parents=True)
    save_weights(directory / "weights.safetensors", initial_method(settings, 3, 12, seed))
    save_recipe(directory / "recipe.json", settings, "tiny", 0, 3, 12)
    return directory


def save_photos(folder: Path) -> Path:
    """COUNT pictures in folders of any depth, one of them no JPEG, a text file, and hidden files of a
    desktop."""
    for number in range(COUNT):
        path = (
            folder
            / f"shelf {number % 3}"
            / ("deep" if number % 2 else "")
            / f"schön {number}.{'PNG' if number == 4 else 'jpg'}"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number, "PNG" if number == 4 else "JPEG"))
    (folder / "prices.txt").write_text("1 EUR")
    (folder / "._schön.jpg").write_bytes(b"not a picture")
    return folder


def age(folder: Path, seconds: float = 60) -> None:
    """Sets the modification times of all files to a time in the past."""
    for path in folder.rglob("*"):
        os.utime(path, (time.time() - seconds, time.time() - seconds))


def save_products(folder: Path, products: int = 12, each: int = 5, first: int = 0) -> Path:
    """One folder per product with pictures of one colour pattern and a little noise."""
    for product in range(first, first + products):
        random = np.random.default_rng(product)
        blocks = random.integers(0, 256, (5, 6, 3))
        for number in range(each):
            noisy = np.clip(blocks + random.integers(-20, 20, blocks.shape), 0, 255).astype(np.uint8)
            path = folder / f"product {product:02d}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.kron(noisy, np.ones((8, 8, 1), np.uint8))).save(path)
    return folder
