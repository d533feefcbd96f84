"""Slow checkpoints are rare, and fewer checkpoints give the same result."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.training import loop, resume
from pipeline.training.pace import CheckpointPace
from tests.training.jobs import Killed, job, recipe

CPU = torch.device("cpu")


def test_a_slow_checkpoint_takes_a_fiftieth_of_the_time() -> None:
    now = [100.0]
    pace = CheckpointPace(lambda: now[0])
    assert pace.due()
    for seconds, waits in ((0.9, 0.0), (4.0, 200.0)):
        with pace.measured():
            now[0] += seconds
        assert pace.due() is (waits == 0)
        now[0] += waits - 1
        assert pace.due() is (waits == 0)
        now[0] += 1.1
        assert pace.due()


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
    original, step = resume.checkpoint.save, loop.train_step
    dues = iter([False, True, *[False] * 20])
    monkeypatch.setattr(CheckpointPace, "due", lambda self: next(dues))

    def save(directory: Path, iteration: int, *content: Any) -> None:
        saved.append(iteration)
        original(directory, iteration, *content)

    def train_step(*arguments: Any) -> Any:
        if arguments[1].step == 9:
            raise Killed
        return step(*arguments)

    monkeypatch.setattr(resume.checkpoint, "save", save)
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
