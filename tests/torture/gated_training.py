"""A training whose steps wait for a campaign (clusters.py, resizes.py), and the comparison of its history.

Its numbers are float64, in which losses of different numbers of workers differ by less than 1e-6 after all
steps.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.training.jobs import double_precision, job, recipe, write_tiny_set
from unseen.runtime.sealed import read_sealed_csv
from unseen.training.job import Job

SEGMENT = 12  # steps between two validations, and between two resizes
TOLERANCE = 1e-6

Rows = list[dict[str, float]]


def gated_job(root: Path, segments: int, batch_norm: str = "batch") -> Job:
    """A training of `segments` segments."""
    training = {"iterations": SEGMENT * segments, "validate_every": SEGMENT}
    return job(root, recipe("baseline", training=training, backbone={"batch_norm": batch_norm}))


def train(job: Job, rank: int, *arguments: Any) -> dict[str, Any]:
    """As the loop of the project; a step begins when `opened` allows it. Records the steps with their number
    of workers, and how many were recorded before each start."""
    from unseen.training import loop

    step, world = loop.train_step, arguments[0]
    if rank == 0:
        with (job.root / "starts").open("a", encoding="utf-8") as file:
            file.write(f"{len(steps_of(job.root))}\n")

    def gated(*arguments: Any) -> Any:
        number = arguments[1].step
        if rank == 0:
            with (job.root / "steps").open("a", encoding="utf-8") as file:
                file.write(f"{number} {world}\n")
        while number >= int((job.root / "opened").read_text(encoding="utf-8")):
            time.sleep(0.02)
        return step(*arguments)

    loop.train_step = gated
    try:
        with double_precision():
            return loop.train(job, rank, *arguments)
    finally:
        loop.train_step = step


def open_until(root: Path, step: int) -> None:
    """Lets the steps before `step` begin."""
    partial = root / "opened.new"
    partial.write_text(str(step), encoding="utf-8")
    os.replace(partial, root / "opened")


def steps_of(root: Path) -> list[int]:
    """The steps that began, in order; a step that began again is there twice."""
    path = root / "steps"
    return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []


def starts_of(root: Path) -> list[int]:
    """For each start of the workers, the number of steps that had begun before."""
    path = root / "starts"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def last_step(root: Path) -> tuple[int, int]:
    """The step that began last, and its number of workers; (-1, 0) before the first."""
    path = root / "steps"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    step, world = lines[-1].split() if lines else (-1, 0)
    return int(step), int(world)


def alone(segments: int) -> Rows:
    """The history of the training on one worker, without Ray."""
    with tempfile.TemporaryDirectory(prefix="uc-") as folder:
        root = Path(folder)
        write_tiny_set(root)
        open_until(root, SEGMENT * segments)
        train(gated_job(root, segments), 0, 1, torch.device("cpu"))
        return history(root)


def history(root: Path) -> Rows:
    """The rows of the history of the training in `root`."""
    outputs = gated_job(root, 1).outputs
    assert outputs is not None
    rows = read_sealed_csv(outputs.history, "Train again.")
    return [{name: float(value) for name, value in row.items()} for row in rows]


def differences(rows: Rows, undisturbed: Rows) -> list[str]:
    """The values that differ by more than TOLERANCE."""
    if [list(row) for row in rows] != [list(row) for row in undisturbed]:
        return [f"the history has {len(rows)} rows, or other columns"]
    return [
        f"{name} of step {expected['iteration']:g} is {row[name]} instead of {expected[name]}"
        for row, expected in zip(rows, undisturbed, strict=True)
        for name in expected
        if abs(row[name] - expected[name]) > TOLERANCE * max(abs(expected[name]), 1e-3)
    ]
