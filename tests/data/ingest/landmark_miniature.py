"""Small archives of retrieval-SfM-120k, revisited Oxford and revisited Paris, sufficient for training on
tuples and for evaluation at every level."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.ingest.pictures import encode
from unseen.data.ingest.census import Count
from unseen.data.ingest.sources import revisited, sfm120k

MODELS, IMAGES = 6, 5  # train models, and images of each
VALIDATION, VALIDATION_IMAGES = 3, 4
DATABASE = 8  # images of each benchmark, besides two queries
BENCHMARKS = ("roxford5k", "rparis6k")


def expect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the sources expect the counts of these archives."""
    counts = {
        "train": Count(MODELS * IMAGES, MODELS),
        "test": Count(VALIDATION * VALIDATION_IMAGES, VALIDATION),
    }
    monkeypatch.setattr(sfm120k, "COUNTS", counts)
    monkeypatch.setattr(revisited, "DATABASE", dict.fromkeys(BENCHMARKS, DATABASE))
    monkeypatch.setattr(revisited, "QUERIES", 2)


def cid(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}"


def photograph(place: int, number: int, width: int = 48, height: int = 36) -> np.ndarray:
    """A place is defined by a colour and a direction of stripes. Each photograph of it has other noise."""
    generator = np.random.default_rng([place, number])
    colour = np.random.default_rng(place).integers(30, 225, 3)
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    stripes = ((across * (place % 3) + down * (1 + place % 2) + number) % 8 < 4)[:, :, None]
    noisy = np.where(stripes, colour, 128) + generator.normal(0, 40, (height, width, 3))
    return noisy.clip(0, 255).astype(np.uint8)


def part(first: int, models: int, images: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """A part of the database and its images by name. Images of a model are not adjacent. The positive of each
    image, except the last of a model, is the next image of the model."""
    names = [cid(first + number) for number in range(models * images)]
    clusters = [10 * (number % models) for number in range(models * images)]
    queries = list(range(models * (images - 1)))
    content = {
        "cids": names,
        "cluster": clusters,
        "qidxs": queries,
        "pidxs": [query + models for query in queries],
    }
    files = {
        name: encode(photograph(100 + first + number % models, number)) for number, name in enumerate(names)
    }
    return content, files


def write(root: Path) -> Path:
    """The folders sfm120k, roxford5k and rparis6k below `root`."""
    train, files = part(1, MODELS, IMAGES)
    val, more = part(1001, VALIDATION, VALIDATION_IMAGES)
    _put(root / "sfm120k" / "retrieval-SfM-120k.pkl", pickle.dumps({"train": train, "val": val}, 2))
    for name, content in (files | more).items():
        _put(root / "sfm120k/ims" / sfm120k.path_of(name), content)
    for number, benchmark in enumerate(BENCHMARKS):
        database = [f"{benchmark[1:6]}_{image:06d}" for image in range(DATABASE)]
        # Both benchmarks use the same names, because their names are independent.
        queries = [f"query_{image:06d}" for image in range(2)]
        gnd = [
            {"bbx": [8.0, 4.0, 40.0, 30.0], "easy": [0, 2], "hard": [4], "junk": [6, 1]},
            {"bbx": [0.0, -1.0, 30.5, 36.0], "easy": [1], "hard": [3, 5], "junk": []},
        ]
        _put(
            root / benchmark / f"gnd_{benchmark}.pkl",
            pickle.dumps({"imlist": database, "qimlist": queries, "gnd": gnd}, 2),
        )
        for image, name in enumerate(database + queries):
            _put(
                root / benchmark / "jpg" / f"{name}.jpg",
                encode(photograph(200 + 10 * number + image % 2, image)),
            )
    return root


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
