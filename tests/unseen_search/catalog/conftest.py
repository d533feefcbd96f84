"""A small model and folder of pictures, and the pictures that builds embed."""

from pathlib import Path

import numpy as np
import pytest

from tests.photos import age, save_model, save_photos
from unseen_search.catalog import Embedder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", 1)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    age(save_photos(tmp_path / "photos"), 3600)
    return tmp_path / "photos"


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pictures of each call of an embedder by a build, which names its progress."""
    counts: list[int] = []
    call = Embedder.__call__

    def counted(self: Embedder, pictures: list[Path], label: str | None = None) -> np.ndarray:
        if label is not None:
            counts.append(len(pictures))
        return call(self, pictures, label)

    monkeypatch.setattr(Embedder, "__call__", counted)
    return counts
