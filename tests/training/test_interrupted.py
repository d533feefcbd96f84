"""An interrupted training: resumed to the same bytes, or refused."""

import dataclasses
import functools
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import job, killed_at, log_of, output_bytes, recipe, states_of, trained
from unseen.methods.artifact import saved_state
from unseen.runtime import stage
from unseen.runtime.errors import UserError
from unseen.training import checkpoint, loop, outputs, pace
from unseen.training.job import Job
from unseen.training.record import TrainingRecord
from unseen.training.run import TrainingRun

pytestmark = pytest.mark.usefixtures("every_checkpoint")

CPU = torch.device("cpu")


def _interrupted(job: Job, steps: tuple[int, ...]) -> None:
    """Trains `job`, killed and restarted at each of `steps`, then to the end."""
    for step in steps:
        with killed_at(step):
            loop.train(job, 0, 1, CPU)
        assert job.outputs is not None
        assert not job.outputs.model.exists()
    loop.train(job, 0, 1, CPU)


@pytest.fixture(scope="session")
def uninterrupted_bytes(fresh_root: Callable[[], Path]) -> Callable[[str], dict[str, bytes]]:
    """The output bytes of a method's training that was not interrupted; each is trained once."""

    return functools.cache(lambda method: output_bytes(trained(fresh_root(), recipe(method))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("irt", (1, 4, 7, 11)),  # the memory of 36 is full at step 3 and then overwrites its rows
        # One step of average pooling; the memory of 48 is full after four; then prototypes are chosen.
        ("gsp", (2, 4, 6, 9)),
    ],
)
def test_a_repeatedly_killed_run_ends_with_the_same_bytes(
    root: Path, uninterrupted_bytes: Callable[[str], dict[str, bytes]], method: str, steps: tuple[int, ...]
) -> None:
    broken = job(root, recipe(method))
    _interrupted(broken, steps)
    assert output_bytes(broken) == uninterrupted_bytes(method)
    checkpoint_steps = (2, 4, 5, 6, 8, 10, 12)
    assert log_of(broken)["resumed_at"] == [
        max(w for w in checkpoint_steps if w <= step) for step in steps if step >= 2
    ]
    assert states_of(broken) == []


_WITH_TRAINING_ONLY_MODULES: dict[str, dict[str, Any]] = {
    "memory": {"loss": {"name": "contrastive"}, "memory": {"size": 36}},
    "memory of all images": {"loss": {"name": "snca"}},
    "momentum encoder": {"loss": {"name": "contrastive"}, "memory": {"size": 36, "momentum": 0.9}},
}


@pytest.mark.slow
@pytest.mark.parametrize("blocks", _WITH_TRAINING_ONLY_MODULES.values(), ids=_WITH_TRAINING_ONLY_MODULES)
def test_best_weights_are_a_model_and_a_resumed_run_ends_with_the_same_bytes(
    fresh_root: Callable[[], Path], monkeypatch: pytest.MonkeyPatch, blocks: dict[str, Any]
) -> None:
    settings = recipe("baseline", **blocks, training={"watch_test": True})
    straight, broken = (job(fresh_root(), settings) for _ in range(2))
    records: list[TrainingRecord] = []
    write_outputs = outputs.write_outputs

    def written(run: TrainingRun) -> None:
        records.append(run.record)
        assert saved_state(run.method).keys() < run.method.state_dict().keys()
        for weights in (run.record.best_weights, run.record.best_on_test_weights):
            assert weights.keys() == saved_state(run.method).keys()
            assert all(value.device == CPU for value in weights.values())
        write_outputs(run)

    monkeypatch.setattr(loop, "write_outputs", written)
    loop.train(straight, 0, 1, CPU)
    _interrupted(broken, (7, 11))
    assert [record.best_iteration for record in records] == [records[0].best_iteration] * 2
    assert output_bytes(broken) == output_bytes(straight)


@pytest.mark.parametrize("step", [3, 4], ids=["between rows", "at the end of a row"])
def test_a_terminated_stage_writes_a_checkpoint_and_resumes_to_the_same_bytes(
    root: Path,
    uninterrupted_bytes: Callable[[str], dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
) -> None:
    take = loop.train_step

    def train_step(learner: Any, batch: Any, *arguments: Any) -> Any:
        if batch.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return take(learner, batch, *arguments)

    broken = dataclasses.replace(job(root, recipe("irt")), checkpoint_every=100)
    monkeypatch.setattr(stage, "start_closing", lambda: None)  # its timer would end the tests
    handler = signal.signal(signal.SIGTERM, stage._end)
    try:
        with monkeypatch.context() as patch, pytest.raises(SystemExit, match="143"):
            patch.setattr(loop, "train_step", train_step)
            loop.train(broken, 0, 1, CPU)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, handler)
    (state,) = states_of(broken)
    assert [path.name for path in state.glob("*.pt")] == [f"{step + 1:08d}.pt"]
    loop.train(broken, 0, 1, CPU)
    assert log_of(broken)["resumed_at"] == [step + 1]
    assert output_bytes(broken) == uninterrupted_bytes("irt")


@pytest.mark.parametrize(
    ("noticed", "killed"),
    [(7, 9), (1, 2), (5, 5)],
    ids=["between rows", "before the first step", "during a validation"],
)
def test_a_training_with_notice_of_a_lost_machine_writes_each_step(
    root: Path, uninterrupted_bytes: Callable[[str], dict[str, bytes]], noticed: int, killed: int
) -> None:
    """From the end of step `noticed` to the last one before the kill."""
    steps = iter(range(1, 100))
    broken = dataclasses.replace(job(root, recipe("irt")), checkpoint_every=100)
    with killed_at(killed):
        loop.train(broken, 0, 1, CPU, preempted=lambda: next(steps) >= noticed)
    (state,) = states_of(broken)
    newest = range(max(noticed, killed - 1), killed + 1)
    assert sorted(path.name for path in state.glob("*.pt")) == [f"{step:08d}.pt" for step in newest]
    loop.train(broken, 0, 1, CPU)
    assert log_of(broken)["resumed_at"] == [killed]
    assert output_bytes(broken) == uninterrupted_bytes("irt")


def _train_and_die(job: Job, iteration: int) -> None:
    """Trains in this process and kills it in the middle of the checkpoint of an iteration."""
    original = torch.save

    def save(content: Any, file: Any) -> None:
        if content["iteration"] == iteration:
            file.write(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        original(content, file)

    pace.SHORT = 60.0
    checkpoint.torch.save = save
    loop.train(job, 0, 1, CPU)


@pytest.mark.slow
def test_a_kill_during_a_checkpoint_resumes_from_the_previous_one(
    root: Path, uninterrupted_bytes: Callable[[str], dict[str, bytes]]
) -> None:
    broken = job(root, recipe("irt"))
    process = multiprocessing.get_context("forkserver").Process(target=_train_and_die, args=(broken, 8))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (state,) = states_of(broken)
    names = sorted(path.name for path in state.iterdir())
    assert [name for name in names if name.endswith(".pt")] == ["00000005.pt", "00000006.pt"]
    assert [name.split(".")[1] for name in names if name.endswith(".partial")] == ["00000008"]
    loop.train(broken, 0, 1, CPU)
    assert output_bytes(broken) == uninterrupted_bytes("irt")
    assert log_of(broken)["resumed_at"] == [6]


@pytest.mark.slow
def test_a_damaged_checkpoint_resumes_from_the_previous_one(
    root: Path,
    uninterrupted_bytes: Callable[[str], dict[str, bytes]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = job(root, recipe("irt"))
    with killed_at(9):
        loop.train(broken, 0, 1, CPU)
    (state,) = states_of(broken)
    newest = max(state.glob("*.pt"))
    os.truncate(newest, newest.stat().st_size // 2)
    loop.train(broken, 0, 1, CPU)
    assert "00000008.pt is damaged" in capsys.readouterr().err
    assert log_of(broken)["resumed_at"] == [6]
    assert output_bytes(broken) == uninterrupted_bytes("irt")


@pytest.mark.slow
def test_a_changed_recipe_does_not_resume_and_deletes_the_old_state(
    fresh_root: Callable[[], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    changed = recipe("baseline", optimizer={"weight_decay": 0.5})
    straight, root = trained(fresh_root(), changed), fresh_root()
    with killed_at(7):
        trained(root, recipe("baseline"))
    changed_job = job(root, changed)
    assert len(states_of(changed_job)) == 1
    loop.train(changed_job, 0, 1, CPU)
    message = (
        "did not end and that differs in recipe.optimizer.weight_decay (0.01, now 0.5): starting from the "
        "first step."
    )
    assert message in capsys.readouterr().err
    assert log_of(changed_job)["resumed_at"] == []
    assert output_bytes(changed_job) == output_bytes(straight)
    assert states_of(changed_job) == []


@pytest.mark.slow
def test_refuses_a_checkpoint_in_the_state_of_another_recipe(root: Path) -> None:
    first, second = job(root, recipe("baseline")), job(root, recipe("baseline", training={"iterations": 11}))
    for training_job in (first, second):
        with killed_at(3):
            loop.train(training_job, 0, 1, CPU)
    older, newest = states_of(first)
    (older / "00000002.pt").replace(newest / "00000004.pt")
    (newest / "00000002.pt").replace(older / "00000004.pt")
    for training_job in (first, second):
        with pytest.raises(UserError, match="belongs to another run"):
            loop.train(training_job, 0, 1, CPU)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_without_partial_outputs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    training_job = job(root, recipe("baseline"))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", full)
        with pytest.raises(UserError, match=r"The disk is full: .*00000002\.pt"):
            loop.train(training_job, 0, 1, CPU)
    with monkeypatch.context() as patch:
        patch.setattr(outputs, "save_recipe", full)
        with pytest.raises(UserError, match=r"The disk is full: .*models/tiny/baseline/0"):
            loop.train(training_job, 0, 1, CPU)
    assert training_job.outputs is not None
    assert list(training_job.outputs.model.parent.iterdir()) == []
    loop.train(training_job, 0, 1, CPU)  # the same command ends the run when the disk has room
    assert log_of(training_job)["resumed_at"] == [12]
