"""A complete training on two workers: rank 0 writes, both decide equally, a killed run resumes to the byte,
and validation equals that of one worker."""

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.training.jobs import job, killed_at, recipe, write_tiny_set
from tests.training.workers import run_workers
from unseen.data.class_split import split_classes
from unseen.data.shards import Shards
from unseen.methods.build import initial_method
from unseen.methods.settings import Recipe
from unseen.runtime.device.world import world_size
from unseen.training import loop, pace, step
from unseen.training.row_embedder import RowEmbedder
from unseen.training.validation import validate
from unseen.training.worker import Worker

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
# 3 classes of 7 images: 21 rows give unequal shares
SETTINGS = recipe("irt", training={"validation_share": 0.3})


def _measure(root: Path, rank: int, settings: Recipe) -> tuple[dict[str, float], torch.Tensor]:
    shards = Shards(root / "data/shards/tiny")
    rows = shards.rows("train")
    split = split_classes(rows, shards.labels[rows], settings.training.validation_share, seed=0)
    method = initial_method(settings, split.classes, len(split.rows), seed=0)
    embedder = RowEmbedder(method, shards, settings, Worker(rank, world_size(), CPU))
    metrics = validate(embedder, split)
    assert len(embedder.embed(split.validation_rows[:1])) == 1  # the second worker has no row
    return metrics, embedder.embed(split.validation_rows)


def _die(rank: int, world: int, root: Path) -> None:
    pace.SHORT = 60.0  # in this process: every checkpoint is written
    with killed_at(7):
        loop.train(job(root, SETTINGS), rank, world, CPU)


def _work(rank: int, world: int, straight: Path, broken: Path) -> dict[str, Any]:
    reports: list[Any] = []
    result = loop.train(job(straight, SETTINGS), rank, world, CPU, report=reports.append)
    _die(rank, world, broken)
    loop.train(job(broken, SETTINGS), rank, world, CPU)
    return {"result": result, "reports": reports, "measured": _measure(straight, rank, SETTINGS)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[dict[str, Any]]]:
    roots = tmp_path_factory.mktemp("straight"), tmp_path_factory.mktemp("broken")
    for root in roots:
        write_tiny_set(root, images=7)
    return *roots, run_workers(_work, 2, *roots)


def test_both_workers_have_equal_numbers(finished: tuple[Path, Path, list[dict[str, Any]]]) -> None:
    first, second = finished[2]
    assert first["result"] == second["result"]
    assert first["reports"] == second["reports"]
    assert [entry["iteration"] for entry in first["reports"]] == [5, 10, 12]


def test_two_workers_killed_and_resumed_end_with_the_same_bytes(
    finished: tuple[Path, Path, list[dict[str, Any]]],
) -> None:
    straight, broken, _ = finished
    files = ("weights.safetensors", "last.safetensors", "untrained.safetensors", "recipe.json")
    names = [*(f"models/tiny/irt/0/{name}" for name in files), "history/tiny/irt/0.csv"]
    for name in names:
        assert (straight / "data" / name).read_bytes() == (broken / "data" / name).read_bytes(), name
    log = json.loads((broken / "data/logs/tiny/irt/0.json").read_text())
    assert (log["resumed_at"], log["workers"]) == ([6], 2)
    assert list((broken / "data/state/tiny/irt").iterdir()) == []


def test_one_worker_continues_a_training_of_two(
    finished: tuple[Path, Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """From their last checkpoint. The batches are equal; losses differ by rounding, which Adam enlarges."""
    write_tiny_set(tmp_path, images=7)
    run_workers(_die, 2, tmp_path)
    loop.train(job(tmp_path, SETTINGS), 0, 1, CPU)
    log = json.loads((tmp_path / "data/logs/tiny/irt/0.json").read_text())
    assert (log["resumed_at"], log["workers"]) == ([6], 1)
    of_two, of_both = (
        (root / "data/history/tiny/irt/0.csv").read_text().splitlines() for root in (finished[0], tmp_path)
    )
    assert of_both[:2] == of_two[:2], "the first row is of two workers in both runs"
    column = of_two[0].split(",").index("loss")
    losses = [[float(line.split(",")[column]) for line in lines[1:]] for lines in (of_two, of_both)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


def _lose_the_group(rank: int, world: int, root: Path, place: str) -> None:
    """The group of both workers is destroyed in step 7, before the call of a function of step.py."""
    calls, function = itertools.count(1), getattr(step, place)

    def called(*arguments: Any) -> Any:
        if next(calls) == 7:
            dist.destroy_process_group()
        return function(*arguments)

    setattr(step, place, called)
    with pytest.raises(RuntimeError, match="the process group was destroyed"):
        loop.train(job(root, SETTINGS), rank, world, CPU, preempted=lambda: True)
    dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=world)
    loop.train(job(root, SETTINGS), rank, world, CPU)


@pytest.mark.parametrize("place", ["gather_outputs", "averaging", "_clip"])
def test_a_step_whose_group_is_destroyed_has_no_checkpoint_unless_it_is_whole(
    place: str, finished: tuple[Path, Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Ray Train destroys the group of a worker whose partner was lost, while every step has a checkpoint."""
    write_tiny_set(tmp_path, images=7)
    run_workers(_lose_the_group, 2, tmp_path, place)
    for name in ("weights.safetensors", "last.safetensors"):
        model = Path("data/models/tiny/irt/0", name)
        assert (tmp_path / model).read_bytes() == (finished[0] / model).read_bytes(), name
    log = json.loads((tmp_path / "data/logs/tiny/irt/0.json").read_text())
    assert log["resumed_at"] == [7 if place == "_clip" else 6]


def test_validation_on_two_workers_equals_that_of_one(
    finished: tuple[Path, Path, list[dict[str, Any]]],
) -> None:
    metrics, embeddings = _measure(finished[0], 0, SETTINGS)
    for worker in finished[2]:
        torch.testing.assert_close(worker["measured"][1], embeddings, rtol=1e-4, atol=1e-5)
        assert worker["measured"][0] == pytest.approx(metrics, abs=1e-6)
    assert len(embeddings) == 21


def test_the_logged_loss_equals_that_of_one_worker(
    finished: tuple[Path, Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """In float32 with Adam, rounding makes runs differ after the first window. test_exact.py compares
    exactly."""
    (tmp_path / "data").symlink_to(finished[0] / "data")
    single = loop.train(dataclasses.replace(job(tmp_path, SETTINGS), state=None, outputs=None), 0, 1, CPU)
    reports: list[Any] = []
    loop.train(
        dataclasses.replace(job(tmp_path, SETTINGS), state=None, outputs=None),
        0,
        1,
        CPU,
        report=reports.append,
    )
    assert reports[-1]["loss"] == single["loss"]  # one worker is deterministic to the last bit
    assert finished[2][0]["reports"][0]["loss"] == pytest.approx(reports[0]["loss"], rel=1e-3)
    assert np.isfinite(single["loss"])
