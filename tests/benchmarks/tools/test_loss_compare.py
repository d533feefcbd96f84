"""The comparison of two trainings step by step."""

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.tools.loss_compare import Trained, compare, read, relative


def trained(losses: list[float], weight: float = 1.0) -> Trained:
    steps = [{"loss": loss, "grad_norm": 2.0} for loss in losses]
    return Trained(steps, {"a": torch.tensor([0.5, weight]), "b": torch.ones(2, dtype=torch.int64)})


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (2.0, 2.0, 0.0),
        (1.0, 2.0, 0.5),
        (-1.0, 1.0, 2.0),
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
    ],
)
def test_relative_difference(one: float, other: float, expected: float) -> None:
    assert relative(one, other) == expected


def test_equal_trainings_have_no_difference() -> None:
    assert [d.largest for d in compare(trained([1.0, 0.5]), trained([1.0, 0.5]))] == [0.0, 0.0, 0.0]


def test_names_the_first_and_the_largest_difference() -> None:
    loss, norm, weights = compare(trained([1.0, 0.5, 0.2]), trained([1.0, 0.4, 0.1], weight=2.0))
    assert (loss.largest, loss.place, loss.first) == (0.5, "step 2", "step 1")
    assert norm.first == ""
    assert (weights.largest, weights.place, weights.first) == (0.5, "a", "a")


def test_a_missing_step_or_weight_differs() -> None:
    shorter = trained([1.0])
    del shorter.weights["b"]
    loss, _, weights = compare(trained([1.0, 0.5]), shorter)
    assert (loss.largest, loss.first) == (math.inf, "step 1")
    assert (weights.largest, weights.place) == (math.inf, "b")


def test_reads_the_outputs_of_stage_train(tmp_path: Path) -> None:
    (tmp_path / "history/d/m").mkdir(parents=True)
    (tmp_path / "models/d/m/0").mkdir(parents=True)
    (tmp_path / "history/d/m/0.csv").write_text("iteration,loss,grad_norm,positive\n0,1.5,2,\n1,1.25,3,1\n")
    save_file({"w": torch.ones(1)}, tmp_path / "models/d/m/0/last.safetensors")
    run = read(tmp_path, "d/m/0")
    assert [step["loss"] for step in run.steps] == [1.5, 1.25]
    assert run.weights.keys() == {"w"}
