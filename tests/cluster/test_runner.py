"""The loop under Ray Train: same numbers as without it, errors as they were raised, a killed worker goes on, progress arrives."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.cluster import training as runner
from pipeline.cluster.training import run_training
from pipeline.config import TrainSettings
from pipeline.runtime.errors import UserError
from pipeline.training.loop import train
from tests.training.jobs import job, recipe

CPU = torch.device("cpu")


def test_a_batch_that_cannot_be_shared_is_refused_before_ray_starts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(runner, "connection")
    with pytest.raises(UserError, match="5 workers cannot share a batch of 12 images"):
        run_training(job(root, recipe("baseline")), TrainSettings(workers=5))


def losses(path: Path) -> list[float]:
    with open(path, newline="", encoding="utf-8") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_workers_log_the_loss_of_one(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = job(root, recipe("baseline"))
    assert shared.outputs is not None
    found = run_training(shared, TrainSettings(workers=2, gpu="no"))
    said = capsys.readouterr().err
    assert said.startswith("train tiny/baseline/0: starting Ray and 2 workers ...\n"), "what follows takes seconds"
    assert said.count("train tiny/baseline/0: 144/144 images") == 1
    alone = replace(shared, outputs=replace(shared.outputs, model=tmp_path / "m", history=tmp_path / "h.csv", log=tmp_path / "l.json"))
    train(alone, 0, 1, CPU)
    assert alone.outputs is not None
    assert losses(shared.outputs.history) == pytest.approx(losses(alone.outputs.history), rel=1e-5)
    assert found["iteration"] == 12
    log = json.loads(shared.outputs.log.read_text())
    assert log["workers"] == 2
    assert set(log["ray_seconds"]) == {"connect", "start", "return", "shutdown"}
    assert all(value >= 0 for value in log["ray_seconds"].values())
    assert log["train_seconds"] > 0
    assert not list((root / "data/state/ray").iterdir())


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_killed_worker_goes_on_from_its_checkpoint_to_the_same_bytes(root: Path, tmp_path: Path) -> None:
    long = recipe("baseline", training={"iterations": 12, "validate_every": 12})
    killed = job(root, long)
    assert killed.outputs is not None
    mark = tmp_path / "killed"

    def loop(*arguments: Any) -> Any:  # the worker of the first attempt dies right after its first checkpoint
        import os
        import signal

        from pipeline.training import checkpoint, loop

        save = checkpoint.save

        def save_and_die(*what: Any) -> None:
            save(*what)
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.save = save_and_die
        return loop.train(*arguments)

    run_training(killed, TrainSettings(workers=1, gpu="no"), loop)
    assert json.loads(killed.outputs.log.read_text())["resumed_at"] == [2]
    whole = replace(killed, outputs=replace(killed.outputs, model=tmp_path / "m", history=tmp_path / "h.csv", log=tmp_path / "l.json"))
    train(whole, 0, 1, CPU)
    assert (tmp_path / "m/last.safetensors").read_bytes() == (killed.outputs.model / "last.safetensors").read_bytes()
    assert (tmp_path / "h.csv").read_bytes() == killed.outputs.history.read_bytes()


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_error_of_one_worker_of_two_reaches_the_stage_as_it_was_said(root: Path) -> None:
    def loop(job: Any, rank: int, world: int, device: torch.device, report: Any = None) -> dict[str, float]:
        if rank == 1:
            raise UserError("Row 3 is damaged.", "Ingest again.")
        torch.distributed.barrier()  # rank 0 waits for one that will not come
        return {}

    with pytest.raises(UserError) as caught:
        run_training(job(root, recipe("baseline")), TrainSettings(workers=2, gpu="no"), loop)
    assert (caught.value.what, caught.value.remedy) == ("Row 3 is damaged.", "Ingest again.")
    assert not list((root / "data/state/ray").iterdir())
