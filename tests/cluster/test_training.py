"""Trainings in this process and under Ray Train: equal numbers, equal bytes after a kill, equal errors."""

import contextlib
import csv
import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import double_precision, job, recipe
from unseen.cluster import train_workers, training
from unseen.cluster.connection import Cluster
from unseen.cluster.training import run_training
from unseen.config.stages import TrainSettings
from unseen.runtime.errors import UserError
from unseen.training.job import Job
from unseen.training.loop import train

CPU = torch.device("cpu")
ONE, TWO = TrainSettings(workers=1, gpu="no"), TrainSettings(workers=2, gpu="no")


def with_other_outputs(job: Job, directory: Path) -> Job:
    """The same training with other output directories."""
    assert job.outputs is not None
    outputs = replace(
        job.outputs,
        model=directory / "model",
        history=directory / "history.csv",
        log=directory / "log.json",
    )
    return replace(job, outputs=outputs)


def results(job: Job) -> dict[str, bytes]:
    """The bytes of the weights and of the history."""
    assert job.outputs is not None
    paths = [*job.outputs.model.iterdir(), job.outputs.history]
    return {"history" if path.suffix == ".csv" else path.name: path.read_bytes() for path in paths}


def log_of(job: Job) -> dict[str, Any]:
    assert job.outputs is not None
    return dict(json.loads(job.outputs.log.read_text()))


def losses(job: Job) -> list[float]:
    assert job.outputs is not None
    with open(job.outputs.history, newline="", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def test_refuses_an_indivisible_batch_before_ray_starts(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(training, "connection")
    with pytest.raises(UserError, match="5 workers cannot share a batch of 12 images"):
        run_training(job(root, recipe("baseline")), TrainSettings(workers=5))


@pytest.mark.parametrize("address", ["", "head:6379"])
@pytest.mark.parametrize(
    ("gpu", "gpus", "workers"),
    [("auto", 0, 1), ("auto", 1, 1), ("auto", 5, 4), ("yes", 99, 12), ("no", 5, 1)],
)
def test_automatic_workers_are_gpus_that_divide_the_batch(
    root: Path, address: str, gpu: str, gpus: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 images. On this machine before Ray starts, on a cluster after it is connected."""
    cluster = Cluster(private=address == "", name="a cluster", cpus=64, gpus=gpus)
    numbers = []

    def fit(job: Job, worlds: list[int], *_: Any) -> dict[str, Any]:
        numbers.append(worlds)
        return {"began": 0.0, "ended": 0.0, "result": {}}

    def connection(processes: int, *_: Any, **__: Any) -> Any:
        return contextlib.nullcontext(cluster)

    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(training, "_train_here", lambda *_: numbers.append("here") or {})
    monkeypatch.setattr(training, "connection", connection)
    monkeypatch.setattr(train_workers, "fit", fit)
    job_ = replace(job(root, recipe("baseline")), outputs=None)
    assert run_training(job_, TrainSettings(workers="auto", gpu=gpu)) == {}
    assert numbers == ["here" if workers == 1 and not address else [workers]]


@pytest.mark.slow
def test_one_worker_trains_in_this_process_to_the_bytes_of_the_loop(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(training, "connection")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    by_cluster = job(root, recipe("baseline"))
    threads = torch.get_num_threads()
    row = run_training(by_cluster, ONE)
    assert row["iteration"] == 12
    assert torch.get_num_threads() == threads
    by_loop = with_other_outputs(by_cluster, tmp_path / "alone")
    train(by_loop, 0, 1, CPU)
    assert results(by_cluster) == results(by_loop)
    assert log_of(by_cluster)["train_seconds"] > 0
    assert "ray_seconds" not in log_of(by_cluster)


@pytest.mark.slow
def test_one_worker_imports_no_ray() -> None:
    code = "import sys, unseen.cluster.training, unseen.training.loop; print('ray' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout == "False\n"


def test_errors_of_the_loop_in_this_process_are_unchanged(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")

    def loop(job: Job, rank: int, world: int, device: torch.device, report: Any = None) -> dict[str, Any]:
        assert (rank, world, device) == (0, 1, CPU)
        raise UserError("Row 3 is damaged.", "Ingest again.")

    with pytest.raises(UserError) as caught:
        run_training(job(root, recipe("baseline")), ONE, loop)
    assert (caught.value.what, caught.value.remedy) == ("Row 3 is damaged.", "Ingest again.")


@pytest.mark.parametrize("kind", ["model", "history", "log", "state"])
def test_refuses_unwritable_outputs_before_the_training(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "local")
    job_ = job(root, recipe("baseline"))
    assert job_.outputs is not None
    assert job_.state is not None
    folder = job_.state if kind == "state" else getattr(job_.outputs, kind).parent
    touch = Path.touch

    def refused(self: Path, *arguments: Any, **options: Any) -> None:
        if self.parent == folder:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))
        touch(self, *arguments, **options)

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(UserError, match=rf"{folder}.* cannot be accessed: Permission denied"):
        run_training(job_, ONE, lambda *_: pytest.fail("the training started"))


def test_refuses_a_missing_gpu(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match=r"train.gpu is yes, and torch .* finds no GPU"):
        run_training(job(root, recipe("baseline")), TrainSettings(gpu="yes"))


def _train_and_die(job: Job) -> None:
    """Trains in this process and kills it after the first checkpoint."""
    from unseen.training.checkpoint import Checkpoints

    save = Checkpoints.save

    def save_and_die(*arguments: Any) -> None:
        save(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    Checkpoints.save = save_and_die
    run_training(job, ONE)


@pytest.mark.slow
def test_a_killed_stage_resumes_to_the_same_bytes(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    killed = job(root, recipe("baseline", training={"validate_every": 12}))
    process = multiprocessing.get_context("forkserver").Process(target=_train_and_die, args=(killed,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    run_training(killed, ONE)
    assert "resuming at step 2 from" in capsys.readouterr().err
    assert log_of(killed)["resumed_at"] == [2]
    uninterrupted = with_other_outputs(killed, tmp_path / "whole")
    train(uninterrupted, 0, 1, CPU)
    assert results(killed) == results(uninterrupted)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_workers_log_the_loss_of_one_after_a_kill(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    shared = job(root, recipe("baseline"))
    mark = tmp_path / "killed"

    def loop(job: Job, rank: int, world: int, device: torch.device, *_: Any) -> Any:
        if not mark.exists():
            torch.distributed.barrier()
            if rank == 1:
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            torch.distributed.barrier()  # rank 0 waits for the dead rank 1
        from tests.training.jobs import double_precision
        from unseen.training.loop import train

        with double_precision():
            return train(job, rank, world, device)

    row = run_training(shared, TWO, loop)
    errors = capsys.readouterr().err
    assert errors.startswith("train tiny/baseline/0: starting Ray and 2 workers ...\n")
    assert mark.exists()
    assert errors.count("train tiny/baseline/0: 144/144 images") == 1
    assert "warning" not in errors, "the internals of Ray Train match LeanTrainer"
    single = with_other_outputs(shared, tmp_path / "alone")
    with double_precision():
        train(single, 0, 1, CPU)
    assert losses(shared) == pytest.approx(losses(single), rel=1e-6)
    assert row["iteration"] == 12
    log = log_of(shared)
    assert log["workers"] == 2
    assert set(log["ray_seconds"]) == {"connect", "start", "return", "shutdown"}
    assert all(seconds >= 0 for seconds in log["ray_seconds"].values())
    assert log["train_seconds"] > 0
    assert not list((root / "data/state/ray").iterdir())


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_the_stage_raises_the_error_of_one_of_two_workers(root: Path) -> None:
    def loop(job: Job, rank: int, *_: Any) -> dict[str, Any]:
        if rank == 1:
            raise UserError("Row 3 is damaged.", "Ingest again.")
        torch.distributed.barrier()  # rank 0 waits for the failed rank 1
        return {}

    with pytest.raises(UserError) as caught:
        run_training(job(root, recipe("baseline")), TWO, loop)
    assert (caught.value.what, caught.value.remedy) == ("Row 3 is damaged.", "Ingest again.")
    assert not list((root / "data/state/ray").iterdir())
