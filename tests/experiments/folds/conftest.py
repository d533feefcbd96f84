from collections.abc import Callable
from pathlib import Path

import pytest

from tests.experiments.folds.protocol_runs import run_protocol, write_set


@pytest.fixture(scope="session")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shards")
    write_set(root)
    return root / "data/shards/tiny"


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory, shards: Path) -> Callable[[], Path]:
    """Makes project roots over the same shards."""

    def make() -> Path:
        root = tmp_path_factory.mktemp("root")
        (root / "data/shards").mkdir(parents=True)
        (root / "data/shards/tiny").symlink_to(shards)
        return root

    return make


@pytest.fixture(scope="session")
def uninterrupted(fresh: Callable[[], Path]) -> Path:
    """A root in which the protocol ran without interruption. Tests must not write to it."""
    root = fresh()
    run_protocol(root)
    return root
