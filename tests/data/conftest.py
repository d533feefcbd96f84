"""Pictures with the statistics of photographs: all scales, a few hard edges, no white noise."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.animals import write
from unseen.data.shard_writer import ShardWriter
from unseen.data.shards import Shards


def make_picture(width: int, height: int, seed: int = 0) -> np.ndarray:
    """uint8 (height, width, 3): 1/f noise, common to the channels for the most part, and two rectangles."""
    generator = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1
    planes = []
    for _ in range(4):
        spectrum = (
            generator.normal(size=frequency.shape) + 1j * generator.normal(size=frequency.shape)
        ) / frequency**1.5
        spectrum[0, 0] = 0
        plane = np.fft.irfft2(spectrum, (height, width))
        planes.append(plane / plane.std())
    picture = 128 + 45 * (0.8 * planes[0][:, :, None] + 0.6 * np.stack(planes[1:], axis=2))
    for _ in range(2):
        top, left = generator.integers(height), generator.integers(width)
        picture[top : top + height // 3, left : left + width // 4] = generator.integers(0, 256, 3)
    return np.clip(picture, 0, 255).astype(np.uint8)


def encode(image: Image.Image, form: str = "JPEG", **options: object) -> np.ndarray:
    """The file's bytes as read-only uint8."""
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return np.frombuffer(buffer.getvalue(), np.uint8)


@pytest.fixture(scope="session")
def picture() -> Callable[..., np.ndarray]:
    return make_picture


@pytest.fixture(scope="session")
def encoded() -> Callable[..., np.ndarray]:
    return encode


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """60 JPEGs of varying size, 10 classes of 6, one in seven grey, one in five rotated by EXIF."""
    directory = tmp_path_factory.mktemp("shards") / "pictures"
    write_shards(directory, 60)
    return Shards(directory)


@pytest.fixture(scope="session")
def shard_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("shards") / "animals")


def write_shards(directory: Path, rows: int) -> None:
    directory.mkdir()
    names = [f"class-{label}" for label in range(rows // 6)]
    with ShardWriter(directory, names, 2**20) as writer:
        for row in range(rows):
            image = Image.fromarray(make_picture(70 + row % 40, 60 + row * 7 % 50, row))
            if row % 7 == 0:
                image = image.convert("L")
            exif = Image.Exif()
            exif[0x0112] = 6 if row % 5 == 0 else 1
            writer.add(
                encode(image, quality=90, exif=exif).tobytes(),
                row // 6,
                "train",
                f"{names[row // 6]}/{row}.jpg",
                *image.size,
            )
        writer.finish({"dataset": "pictures"})
