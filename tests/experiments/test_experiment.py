"""Experiments: each record computed once, written when it comes, read again; the cost and the progress."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tqdm

from unseen.evaluation.record import Record, Run
from unseen.experiments.experiment import Experiment, Store, grid, records
from unseen.frozen.head import head
from unseen.methods.settings import Recipe

EXPERIMENT = Experiment("rows", grid(["a", "b", "like b"], ["x"], [0, 1]))


class Counted:
    """A runner whose trainings take a minute each and whose rows `b` and `like b` are equal."""

    def __init__(self, ends_after: int | None = None) -> None:
        self.ends_after, self.computed, self.now = ends_after, list[Run](), 0.0

    def settings(self, run: Run) -> dict[str, Any]:
        return {"row": run.row.removeprefix("like "), "place": run.place, "seed": run.seed}

    def recipe(self, run: Run) -> Recipe:
        return head("ms", changes={"training.iterations": 0 if run.row == "a" else 10}).recipe()

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        for run in reversed(runs):
            if len(self.computed) == self.ends_after:
                raise KeyboardInterrupt
            self.computed.append(run)
            self.now += 60
            mean = {"c": float(len(self.computed))}
            settings = self.settings(run)
            yield run, Record(settings=settings, images={"c": 2}, classes={"m": mean}, cpu_seconds=60)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(tqdm.std, "time", lambda: made.now)
    return made


def test_equal_settings_are_computed_once_and_read_again(
    runner: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = records(EXPERIMENT, runner, Store(tmp_path / "records"))
    assert list(first) == list(EXPERIMENT.runs), "in the order of the runs, not of the runner"
    assert runner.computed == [Run("b", "x", 1), Run("b", "x", 0), Run("a", "x", 1), Run("a", "x", 0)]
    assert first[Run("like b", "x", 1)] == first[Run("b", "x", 1)]
    assert first[Run("a", "x", 0)].classes == {"m": {"c": 4.0}}
    printed = capsys.readouterr().err
    assert "rows: 2 trainings with 640 images in all steps" in printed
    assert "rows: 6/6 runs  1.0 runs/min" in printed
    for run, record in first.items():
        text = json.dumps(runner.settings(run), sort_keys=True).encode()
        path = tmp_path / "records" / f"{hashlib.sha256(text).hexdigest()[:24]}.json"
        assert Record.parse(json.loads(path.read_text())) == record
    assert records(EXPERIMENT, Counted(0), Store(tmp_path / "records")) == first
    assert capsys.readouterr().err.split("  in ")[0] == "rows: 6/6 runs", "no cost and no rate"


def test_a_killed_experiment_continues_and_its_eta_excludes_earlier_runs(
    runner: Counted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        records(EXPERIMENT, Counted(2), Store(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    capsys.readouterr()
    records(EXPERIMENT, runner, Store(tmp_path))
    assert runner.computed == [Run("a", "x", 1), Run("a", "x", 0)]
    assert re.search(r"rows: 5/6 runs  1\.0 runs/min  ETA 01:00", capsys.readouterr().err)
