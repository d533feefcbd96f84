from pathlib import Path

import pytest

from tests.training.jobs import write_tiny_set


@pytest.fixture(scope="session")
def tiny_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project root that holds the shards of data set `tiny` and nothing else."""
    root = tmp_path_factory.mktemp("tiny")
    write_tiny_set(root)
    return root


@pytest.fixture
def root(tiny_set: Path, tmp_path: Path) -> Path:
    """A fresh project root over the same shards."""
    (tmp_path / "data/shards").mkdir(parents=True)
    (tmp_path / "data/shards/tiny").symlink_to(tiny_set / "data/shards/tiny")
    return tmp_path
