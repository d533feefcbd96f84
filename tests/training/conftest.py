"""Checkpoints at fixed steps, also on a busy machine."""

import pytest

from pipeline.training import pace


@pytest.fixture
def every_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training waits for each checkpoint before the next one, whatever it costs."""
    monkeypatch.setattr(pace, "SHORT", 60.0)
