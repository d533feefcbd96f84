"""Trains two commits on the same data with the same seed and compares them step by step.

    python benchmarks/tools/loss_compare.py BEFORE [AFTER] [--dataset parts] [--method ms] [--seed 0]
                                            [--steps 20] [--tolerance 0]

AFTER is the working tree if it is left out, with its uncommitted changes to tracked files. Each commit is
checked out in a temporary directory and runs its own stages `resolve`, `ingest` and `train`, with a
validation after every step, so that the history has one row per step. Compared are the loss and the gradient
norm of every step, and the last weights. The tolerance is relative to the larger magnitude; 0 requires equal
numbers. Exit status 1: they differ by more.
"""

import argparse
import csv
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from ruamel.yaml import YAML
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("loss", "grad_norm")


class Trained(NamedTuple):
    """The steps of a training, in order, and its last weights."""

    steps: list[dict[str, float]]
    weights: dict[str, torch.Tensor]


class Difference(NamedTuple):
    """The largest relative difference of one quantity, and where it is."""

    quantity: str
    largest: float
    place: str
    first: str  # the first place with any difference; empty if there is none


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def shorten(path: Path, dataset: str, method: str, seed: int, steps: int) -> None:
    """Changes params.yaml to one training of `steps` steps, each with a row of the history."""
    yaml = YAML()
    params = yaml.load(path.read_text(encoding="utf-8"))
    params["run"].update(
        {"datasets": [dataset], "methods": [method], "seeds": [seed], "sweeps": [], "ensembles": []}
    )
    block = params.setdefault("datasets", {}).setdefault(dataset, {})
    recipe = block.setdefault("methods", {}).setdefault(method, {})
    recipe.setdefault("training", {}).update({"iterations": steps, "validate_every": 1})
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(params, file)


def train(tree: Path, dataset: str, method: str, seed: int, steps: int) -> Trained:
    """Runs the stages of the checkout `tree`."""
    shorten(tree / "params.yaml", dataset, method, seed, steps)
    raw = tree / "data/raw" / dataset
    if (ROOT / "data/raw" / dataset).is_dir() and not raw.is_dir():
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.symlink_to(ROOT / "data/raw" / dataset)
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_WAIT_POLICY": "passive"}
    package = "unseen.stages" if (tree / "unseen/stages").is_dir() else "stages"  # of earlier commits
    for stage in (["resolve"], ["ingest", dataset], ["train", dataset, method, str(seed)]):
        command = [sys.executable, "-m", f"{package}.{stage[0]}", *stage[1:]]
        subprocess.run(command, cwd=tree, env=environment, check=True)
    return read(tree / "data", f"{dataset}/{method}/{seed}")


def read(data: Path, name: str) -> Trained:
    """The outputs of stage train."""
    with open(data / "history" / f"{name}.csv", encoding="utf-8", newline="") as file:
        rows = [{key: float(value) for key, value in row.items() if value} for row in csv.DictReader(file)]
    return Trained(rows, load_file(data / "models" / name / "last.safetensors"))


def relative(before: float, after: float) -> float:
    """|a - b| / max(|a|, |b|); 0 for equal values, also for two NaN; infinity if one is not finite."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return 0.0
    if not (math.isfinite(before) and math.isfinite(after)):
        return math.inf
    return abs(before - after) / max(abs(before), abs(after))


def compare(before: Trained, after: Trained) -> list[Difference]:
    """The differences of each column and of the weights. A missing step or weight is an infinite
    difference. Weights are compared per tensor, by max |a - b| / max(|a|, |b|) over its values."""
    differences = []
    steps = max(len(before.steps), len(after.steps))
    for column in COLUMNS:
        one, other = (
            [step.get(column, math.nan) for step in run.steps] + [math.inf] * (steps - len(run.steps))
            for run in (before, after)
        )
        values = [(f"step {number}", relative(one[number], other[number])) for number in range(steps)]
        differences.append(_largest(column, values))
    values = []
    for key in sorted(before.weights.keys() | after.weights.keys()):
        values.append((key, _of_weights(before.weights.get(key), after.weights.get(key))))
    return [*differences, _largest("last weights", values)]


def _of_weights(before: torch.Tensor | None, after: torch.Tensor | None) -> float:
    if before is None or after is None or before.shape != after.shape:
        return math.inf
    if torch.equal(before, after):
        return 0.0
    before, after = before.double(), after.double()
    scale = max(before.abs().max().item(), after.abs().max().item())
    return (before - after).abs().max().item() / scale


def _largest(quantity: str, values: list[tuple[str, float]]) -> Difference:
    place, largest = max(values, key=lambda item: item[1])
    first = next((place for place, value in values if value > 0), "")
    return Difference(quantity, largest, place, first)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="a commit; default: the working tree")
    parser.add_argument("--dataset", default="parts")
    parser.add_argument("--method", default="ms")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=0.0)
    arguments = parser.parse_args()
    after = arguments.after or git("stash", "create") or "HEAD"
    runs = []
    with tempfile.TemporaryDirectory(prefix="unseen-compare-") as scratch:
        for name, commit in (("before", arguments.before), ("after", after)):
            tree = Path(scratch) / name
            git("worktree", "add", "--detach", str(tree), commit)
            try:
                cell = arguments.dataset, arguments.method, arguments.seed, arguments.steps
                runs.append(train(tree, *cell))
            finally:
                git("worktree", "remove", "--force", str(tree))
    differences = compare(*runs)
    for row, (one, other) in enumerate(zip(runs[0].steps, runs[1].steps, strict=False)):
        numbers = "  ".join(f"{column} {one[column]:.9g} {other[column]:.9g}" for column in COLUMNS)
        sys.stdout.write(f"step {row:3d}  {numbers}\n")
    for difference in differences:
        where = f" at {difference.place}, first at {difference.first}" if difference.first else ""
        sys.stdout.write(
            f"{difference.quantity}: largest relative difference {difference.largest:.3g}{where}\n"
        )
    if any(difference.largest > arguments.tolerance for difference in differences):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
