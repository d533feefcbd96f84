"""Expensive checkpoints are rare, and fewer checkpoints give the same result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import killed_at, output_bytes, recipe, trained
from unseen.training import loop
from unseen.training.checkpoint import Checkpoints
from unseen.training.pace import SHORT, CheckpointPace

CPU = torch.device("cpu")


def test_an_expensive_checkpoint_costs_a_fiftieth_of_the_time() -> None:
    now = [100.0]
    pace = CheckpointPace(lambda: now[0])
    assert pace.due()
    for cost, waits in ((0.19, 0.0), (4.0, 200.0)):
        pace.ended(cost, lasted=60.0)
        assert pace.due() is (waits == 0)
        now[0] += waits - 1
        assert pace.due() is (waits == 0)
        now[0] += 1.1
        assert pace.due()


def test_a_training_waits_only_for_a_writer_that_was_fast() -> None:
    pace = CheckpointPace()
    assert pace.patience() == SHORT
    pace.ended(0.1, lasted=SHORT + 0.1)
    assert pace.patience() == 0
    pace.ended(0.1, lasted=SHORT)
    assert pace.patience() == SHORT


@pytest.mark.slow
def test_a_killed_run_without_recent_checkpoints_gives_the_same_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = trained(root, recipe("baseline"))
    assert expected.outputs is not None
    history = tmp_path / expected.outputs.history.name
    outputs = replace(expected.outputs, model=tmp_path / "model", history=history)
    killed = replace(expected, outputs=outputs)
    saved: list[int] = []
    original = Checkpoints.save
    dues = iter([False, True, *[False] * 20])
    monkeypatch.setattr(CheckpointPace, "due", lambda self: next(dues))

    def save(checkpoints: Checkpoints, iteration: int, *content: Any) -> None:
        saved.append(iteration)
        original(checkpoints, iteration, *content)

    monkeypatch.setattr(Checkpoints, "save", save)
    with killed_at(9):
        loop.train(killed, 0, 1, CPU)
    assert saved == [4]
    loop.train(killed, 0, 1, CPU)
    assert saved == [4]
    assert output_bytes(killed) == output_bytes(expected)
