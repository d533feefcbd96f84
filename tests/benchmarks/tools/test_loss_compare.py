"""The comparison of two trainings step by step."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmarks.tools import loss_compare
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


STAGE = """import csv, sys
from pathlib import Path
import torch
from ruamel.yaml import YAML
from safetensors.torch import save_file
RATE = 0.5
params = YAML(typ="safe").load(Path("params.yaml").read_text())
training = params["datasets"]["parts"]["methods"]["ms"]["training"]
assert params["run"]["methods"] == ["ms"] and training["validate_every"] == 1
weight, rows = torch.tensor([float(sys.argv[3]) + 1.0]), []
for step in range(training["iterations"]):
    rows.append((step, weight.item() ** 2, 2 * weight.item()))
    weight = weight - RATE * weight
data = Path("data")
for folder in ("history/parts/ms", "models/parts/ms/0"):
    (data / folder).mkdir(parents=True)
with (data / "history/parts/ms/0.csv").open("w", newline="") as file:
    csv.writer(file).writerows([("iteration", "loss", "grad_norm"), *rows])
save_file({"w": weight}, data / "models/parts/ms/0/last.safetensors")
"""


@pytest.mark.slow
def test_compares_two_commits_and_the_working_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def main(*arguments: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["loss_compare", *arguments, "--steps", "2"])
        try:
            loss_compare.main()
        finally:
            lines = capsys.readouterr().out.splitlines()
            worktrees = ["git", "worktree", "list"]
            listed = subprocess.run(
                worktrees, cwd=tmp_path, check=True, capture_output=True, text=True
            ).stdout
            assert len(listed.splitlines()) == 1, "the checkouts are removed"
        return lines

    monkeypatch.setattr(loss_compare, "ROOT", tmp_path)
    (tmp_path / "stages").mkdir()
    for name in ("__init__", "resolve", "ingest"):
        (tmp_path / f"stages/{name}.py").write_text("")
    (tmp_path / "stages/train.py").write_text(STAGE)
    (tmp_path / "params.yaml").write_text("run: {datasets: [x], methods: [y], seeds: [1]}\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    equal = main("HEAD")
    assert equal[:2] == [
        f"step   {step}  loss {loss} {loss}  grad_norm {norm} {norm}"
        for step, loss, norm in ((0, "1", "2"), (1, "0.25", "1"))
    ]
    assert equal[2:] == [
        f"{name}: largest relative difference 0" for name in ("loss", "grad_norm", "last weights")
    ]
    (tmp_path / "stages/train.py").write_text(STAGE.replace("RATE = 0.5", "RATE = 0.75"))
    with pytest.raises(SystemExit, match="1"):
        main("HEAD")  # uncommitted changes
    git("commit", "--quiet", "--all", "--message", "two")
    differences = main("HEAD~1", "HEAD", "--tolerance", "0.9")[2:]
    assert differences[0] == "loss: largest relative difference 0.75 at step 1, first at step 1"
    assert differences[2] == "last weights: largest relative difference 0.75 at w, first at w"
