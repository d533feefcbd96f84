"""Checkpoints in the background: steps do not wait, errors reach the training, and every kill leaves a
checkpoint that is whole."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import Killed, output_bytes, recipe, trained
from unseen.runtime.errors import UserError
from unseen.training import loop, resume
from unseen.training.background import Background
from unseen.training.checkpoint import Checkpoints

CPU = torch.device("cpu")


def test_executes_one_call_at_a_time() -> None:
    gate, ended = threading.Event(), []
    with Background() as background:
        assert background.wait(0.0)

        def first() -> None:
            gate.wait()
            ended.append(1)

        background.start(first)
        assert not background.wait(0.01)
        gate.set()
        background.start(lambda: ended.append(2))
    assert ended == [1, 2]


def test_raises_the_error_of_a_call_once() -> None:
    def fail() -> None:
        raise UserError("The disk is full.", "Make space.")

    background = Background()
    background.start(fail)
    with pytest.raises(UserError, match="The disk is full"):
        background.wait()
    background.raise_failure()
    with pytest.raises(UserError, match="The disk is full"), background:
        background.start(fail)


def test_an_error_of_the_training_takes_precedence(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UserError("The disk is full.", "Make space.")

    with pytest.raises(Killed), Background() as background:
        background.start(fail)
        raise Killed
    assert "The disk is full" in capsys.readouterr().err


@pytest.mark.slow
def test_steps_do_not_wait_for_a_slow_writer(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save, step, last_step = Checkpoints.save, loop.train_step, threading.Event()
    saved: list[int] = []

    def slow(checkpoints: Checkpoints, iteration: int, *content: Any) -> None:
        saved.append(iteration)
        assert last_step.wait(60)  # the first checkpoint ends when all steps have begun
        save(checkpoints, iteration, *content)

    def train_step(*arguments: Any) -> Any:
        if arguments[1].step == 11:
            last_step.set()
        return step(*arguments)

    monkeypatch.setattr(Checkpoints, "save", slow)
    monkeypatch.setattr(loop, "train_step", train_step)
    trained(root, recipe("baseline"))
    assert saved[0] == 2
    assert set(saved) <= {2, 12}


@pytest.mark.slow
def test_a_checkpoint_contains_the_values_of_its_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that begins after later steps writes the state before them."""
    start, step, later = Background.start, loop.train_step, threading.Event()

    def late(background: Background, write: Callable[[], None]) -> None:
        def begin() -> None:
            assert later.wait(60)
            write()

        start(background, begin)

    def train_step(*arguments: Any) -> Any:
        if arguments[1].step == 4:
            later.set()
            raise Killed
        return step(*arguments)

    training_job = trained(root, recipe("irt", training={"iterations": 6}))
    straight = output_bytes(training_job)
    monkeypatch.setattr(resume, "LARGE", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Background, "start", late)
        patch.setattr(loop, "train_step", train_step)
        with pytest.raises(Killed):
            loop.train(training_job, 0, 1, CPU)
    loop.train(training_job, 0, 1, CPU)
    assert output_bytes(training_job) == straight


@pytest.mark.slow
def test_a_full_disk_stops_the_next_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step, failed = loop.train_step, threading.Event()

    def full(*_: Any) -> None:
        failed.set()
        raise UserError("The disk is full.", "Make space.")

    def train_step(*arguments: Any) -> Any:
        steps.append(arguments[1].step)
        if steps[-1] == 3:
            assert failed.wait(60)
        return step(*arguments)

    monkeypatch.setattr(Checkpoints, "save", full)
    monkeypatch.setattr(loop, "train_step", train_step)
    with pytest.raises(UserError, match="The disk is full"):
        trained(root, recipe("baseline", training={"validate_every": 12}))
    assert steps[-1] <= 4


_KILLED_BEFORE_THE_MAIN_FILE = """
import os, signal, sys, torch
from pathlib import Path
from unseen.training import checkpoint, loop, pace, resume
from tests.training.jobs import job, recipe

pace.SHORT, resume.LARGE = 60.0, 1
save = checkpoint.torch.save

def killed(content, file):
    if content["iteration"] == 6:
        assert content["parts"]["memories"]["blocks"] and content["parts"]["best_weights"]["blocks"]
        os.kill(os.getpid(), signal.SIGKILL)
    save(content, file)

checkpoint.torch.save = killed
loop.train(job(Path(sys.argv[1]), recipe("irt")), 0, 1, torch.device("cpu"))
"""


@pytest.mark.slow
def test_a_kill_between_a_memory_and_its_checkpoint_resumes_from_the_one_before(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    training_job = trained(root, recipe("irt"))
    straight = output_bytes(training_job)
    died = subprocess.run(
        [sys.executable, "-c", _KILLED_BEFORE_THE_MAIN_FILE, str(root)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    (state,) = (root / "data/state/tiny/irt").iterdir()
    assert sorted(path.name for path in state.glob("*.pt")) == ["00000004.pt", "00000005.pt"]
    monkeypatch.setattr(resume, "LARGE", 1)
    loop.train(training_job, 0, 1, CPU)
    assert "resuming at step 5" in capsys.readouterr().err
    assert output_bytes(training_job) == straight
