"""Gradient noise recorded in a training: in the history, after a kill, on two workers, and without an effect
on the weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.jobs import job, recipe, write_tiny_set
from tests.training.workers import run_workers
from unseen.report.report_data import read_history
from unseen.runtime.errors import UserError
from unseen.training import loop
from unseen.training.gradient_noise import NAMES

CPU = torch.device("cpu")
BATCH = 12


def history(root: Path) -> list[dict[str, float]]:
    return read_history(root / "data/history/tiny/irt/0.csv", "")


def train(root: Path, term: str | None, rank: int = 0, world: int = 1) -> None:
    loop.train(
        job(root, recipe("irt", training={"gradient_noise": term, "iterations": 10, "validate_every": 5})),
        rank,
        world,
        CPU,
    )


def _work(rank: int, world: int, root: Path) -> Any:
    train(root, "contrastive", rank, world)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    roots_by_name = {}
    for name in ("off", "on", "two"):
        roots_by_name[name] = tmp_path_factory.mktemp(name)
        write_tiny_set(roots_by_name[name])
    train(roots_by_name["off"], None)
    train(roots_by_name["on"], "contrastive")
    run_workers(_work, 2, roots_by_name["two"])
    return roots_by_name


@pytest.mark.slow
def test_recording_does_not_change_the_weights(roots: dict[str, Path]) -> None:
    for name in ("weights", "last"):
        unrecorded, recorded = (
            (roots[side] / f"data/models/tiny/irt/0/{name}.safetensors").read_bytes()
            for side in ("off", "on")
        )
        assert unrecorded == recorded
    assert not set(NAMES) & set(history(roots["off"])[0])
    columns = list(history(roots["on"])[0])
    assert columns[columns.index(NAMES[0]) : columns.index("grad_norm") + 1] == [*NAMES, "grad_norm"]


def test_rows_are_at_the_validations(roots: dict[str, Path]) -> None:
    rows = history(roots["on"])
    assert [row["iteration"] for row in rows] == [5, 10]
    assert all(row[NAMES[0]] > 0 and 0 < row[NAMES[1]] <= BATCH / (BATCH - 1) for row in rows)


def test_two_workers_record_the_noise_of_one(roots: dict[str, Path]) -> None:
    for single, double in zip(history(roots["on"]), history(roots["two"]), strict=True):
        assert [double[name] for name in NAMES] == pytest.approx([single[name] for name in NAMES], rel=1e-3)


def test_refuses_an_unknown_term(roots: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="no loss term 'triplet'"):
        train(roots["off"], "triplet")
