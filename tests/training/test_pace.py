"""Expensive checkpoints are rare, and fewer checkpoints give the same result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import Killed, job, recipe
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
    expected = job(root, recipe("baseline"))
    loop.train(expected, 0, 1, CPU)
    assert expected.outputs is not None
    outputs = replace(expected.outputs, model=tmp_path / "model", history=tmp_path / "history.csv")
    killed = replace(expected, outputs=outputs)
    saved: list[int] = []
    original, step = Checkpoints.save, loop.train_step
    dues = iter([False, True, *[False] * 20])
    monkeypatch.setattr(CheckpointPace, "due", lambda self: next(dues))

    def save(checkpoints: Checkpoints, iteration: int, *content: Any) -> None:
        saved.append(iteration)
        original(checkpoints, iteration, *content)

    def train_step(*arguments: Any) -> Any:
        if arguments[1].step == 9:
            raise Killed
        return step(*arguments)

    monkeypatch.setattr(Checkpoints, "save", save)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "train_step", train_step)
        with pytest.raises(Killed):
            loop.train(killed, 0, 1, CPU)
    assert saved == [4]
    loop.train(killed, 0, 1, CPU)
    assert saved == [4]
    for name in ("weights", "last", "untrained"):
        file = f"{name}.safetensors"
        assert (outputs.model / file).read_bytes() == (expected.outputs.model / file).read_bytes()
    assert outputs.history.read_bytes() == expected.outputs.history.read_bytes()
