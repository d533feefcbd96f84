"""Checkpoints at fixed steps, also on a busy machine; folders of trainings on one small set."""

from collections.abc import Callable
from pathlib import Path

import pytest

from unseen.training import pace


@pytest.fixture
def every_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training waits for each checkpoint before the next one, whatever it costs."""
    monkeypatch.setattr(pace, "SHORT", 60.0)


@pytest.fixture(scope="session")
def fresh_root(tmp_path_factory: pytest.TempPathFactory, tiny_set: Path) -> Callable[[], Path]:
    def make() -> Path:
        root = tmp_path_factory.mktemp("root")
        (root / "data/shards").mkdir(parents=True)
        (root / "data/shards/tiny").symlink_to(tiny_set / "data/shards/tiny")
        return root

    return make
