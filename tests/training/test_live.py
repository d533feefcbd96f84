"""The curve of a run while it trains."""

import dataclasses
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.jobs import Killed, job, recipe, trained
from unseen.cluster.training import run_training
from unseen.config.stages import TrainSettings
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted
from unseen.runtime.trackers import Numbers, TrackedRun, Trackers
from unseen.training import loop
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
    runs[0].end(ROWS)
    assert not partial.exists()
    write_history(tmp_path / "expected.csv", ROWS)
    (file,) = (tmp_path / "data/state/live").rglob("*.csv")
    assert file.name == "1.csv"
    assert file.read_bytes() == (tmp_path / "expected.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_trackers_change_no_byte_and_end_no_training(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = trained(root, recipe("baseline"))
    with trusted("tests"):
        machine = TrainSettings.parse({"trackers": ["tensorboard", "mlflow", {"module": f"{__name__}:Full"}]})
    watched = dataclasses.replace(job(root, recipe("baseline"), seed=1), seed=0, trackers=machine.trackers)
    assert plain.outputs is not None
    assert watched.outputs is not None
    run_training(watched, TrainSettings(gpu="no"))
    for name in ("weights", "last", "untrained"):
        files = [outputs.model / f"{name}.safetensors" for outputs in (plain.outputs, watched.outputs)]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert watched.outputs.history.read_bytes() == plain.outputs.history.read_bytes()
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning: tracker" in line]
    assert lines == [
        f"warning: tracker {__name__}:Full gets no more numbers of this stage: OSError: No space left"
    ]
    events = EventAccumulator(str(root / "data/state/tensorboard/tiny/baseline/0")).Reload()
    assert {"loss", "lr", "grad_norm", "recall_at_1"} <= set(events.Tags()["tensors"])
    digest = json.loads((plain.outputs.model / "recipe.json").read_text())["weights_sha256"]["weights"]
    (text,) = events.Tensors("sha256/weights")
    assert text.tensor_proto.string_val[0].decode() == digest


class Full:
    """A tracker without space for its second row."""

    def __init__(self, run: TrackedRun) -> None:
        self.rows = 0

    def log(self, numbers: Numbers, step: int) -> None:
        self.rows += 1
        if self.rows > 1:
            raise OSError("No space left")

    def end(self, summary: dict[str, Any]) -> None:
        raise AssertionError("it failed before")


def test_a_resumed_training_gives_its_trackers_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    monkeypatch.setattr(Trackers, "log", lambda self, numbers, step: steps.append(step))
    training_job = dataclasses.replace(job(tmp_path, recipe("baseline")), trackers=("tensorboard",))
    Live(training_job, 0).show(ROWS[:1])
    resumed = Live(training_job, 0)
    resumed.show(ROWS)
    resumed.show([*ROWS, {"iteration": 15, "loss": 0.1, "lr": 0.1}])
    assert steps == [5, 5, 10, 15]


def test_refuses_a_tracker_without_its_package_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    training_job = dataclasses.replace(job(tmp_path, recipe("baseline")), trackers=("wandb",))
    message = r"package wandb is not installed.*\s+.*pip install 'unseen\[wandb\]'"
    with pytest.raises(UserError, match=message):
        run_training(training_job, TrainSettings(gpu="no"))
