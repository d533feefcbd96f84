"""The curve of a run while it trains."""

import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.jobs import Killed, job, recipe
from unseen.cluster.training import run_training
from unseen.config.stages import TrainSettings
from unseen.runtime.errors import UserError
from unseen.training import live, loop
from unseen.training.history import write_history
from unseen.training.live import Live

ROWS: list[Any] = [{"iteration": 5, "loss": 0.5, "lr": 0.1}, {"iteration": 10, "loss": 0.25, "lr": 0.1}]


@pytest.mark.slow
def test_rows_of_a_running_training_are_those_of_its_history(root: Path) -> None:
    rows: list[str] = []
    training_job = job(root, recipe("baseline"))
    path = root / "data/state/live/tiny/baseline/0.csv"

    def stop_at_second_row(row: dict[str, Any]) -> None:
        rows.append(path.read_text(encoding="utf-8"))
        if len(rows) == 2:
            raise Killed

    with pytest.raises(Killed):
        loop.train(training_job, 0, 1, torch.device("cpu"), stop_at_second_row)
    loop.train(training_job, 0, 1, torch.device("cpu"))
    assert training_job.outputs is not None
    history = training_job.outputs.history.read_text(encoding="utf-8")
    assert [_cells(text) for text in rows] == [_cells(history)[:2], _cells(history)[:3]]
    assert not path.parents[2].exists()


def _cells(text: str) -> list[list[str]]:
    """The lines without their last cell, the seal."""
    return [line.split(",")[:-1] for line in text.splitlines()]


def test_only_rank_0_of_a_job_with_outputs_writes(tmp_path: Path) -> None:
    training_job = job(tmp_path, recipe("baseline"))
    Live(training_job, 1).show(ROWS)
    Live(dataclasses.replace(training_job, outputs=None), 0).show(ROWS)
    assert not (tmp_path / "data").exists()
    other = dataclasses.replace(training_job, seed=1)
    runs = Live(training_job, 0), Live(other, 0)
    for run in runs:
        run.show(ROWS)
    partial = tmp_path / f"data/state/live/tiny/baseline/.0.csv.{'0' * 32}.partial"
    partial.write_bytes(b"of a killed writer")
    runs[0].end()
    assert not partial.exists()
    write_history(tmp_path / "expected.csv", ROWS)
    (file,) = (tmp_path / "data/state/live").rglob("*.csv")
    assert file.name == "1.csv"
    assert file.read_bytes() == (tmp_path / "expected.csv").read_bytes()


def test_tensorboard_receives_each_row_and_forgets_steps_that_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def writer(directory: Path, purge_step: int) -> SimpleNamespace:
        calls.append((directory.relative_to(tmp_path).as_posix(), directory.exists(), purge_step))
        directory.mkdir(parents=True, exist_ok=True)
        return SimpleNamespace(add_scalar=lambda *scalar: calls.append(scalar), flush=lambda: None)

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=writer))
    training_job = dataclasses.replace(job(tmp_path, recipe("baseline")), tensorboard=True)
    folder = "data/state/tensorboard/tiny/baseline/0"
    (tmp_path / folder).mkdir(parents=True)
    Live(training_job, 0).show(ROWS[:1])
    assert calls == [(folder, False, 5), ("loss", 0.5, 5), ("lr", 0.1, 5)]
    calls.clear()
    Live(training_job, 0).show(ROWS)  # resumed
    assert calls == [(folder, True, 10), ("loss", 0.25, 10), ("lr", 0.1, 10)]


def test_refuses_tensorboard_without_its_package_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live.importlib.util, "find_spec", lambda name: None)
    training_job = dataclasses.replace(job(tmp_path, recipe("baseline")), tensorboard=True)
    with pytest.raises(UserError, match="package tensorboard is not installed"):
        run_training(training_job, TrainSettings(gpu="no"))
