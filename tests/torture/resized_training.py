"""A training that waits for the resizes of its cluster (resizes.py).

Its numbers are float64, in which losses of different numbers of workers differ by less than 1e-6 after all
steps: an optimizer enlarges the rounding of float32 far more.
"""

import os
import time
from pathlib import Path
from typing import Any

import torch

from pipeline.training.job import Job
from tests.training.jobs import job, recipe

SEGMENT = 12  # steps between two resizes
RESIZES = 10  # of a training


def long_job(root: Path) -> Job:
    steps = SEGMENT * (RESIZES + 1)
    return job(root, recipe("baseline", training={"iterations": steps, "validate_every": SEGMENT}))


def train(job: Job, rank: int, world: int, device: torch.device, report: Any = None) -> dict[str, Any]:
    """As the loop of the project; a step begins when `opened` allows it. Records the number of workers."""
    from pipeline.training import loop, run

    initial, step = run.initial_method, loop.train_step

    def in_double_precision(*arguments: Any) -> Any:
        return initial(*arguments).double()

    def gated(*arguments: Any) -> Any:
        number = arguments[1].step
        if rank == 0:
            with (job.root / "steps").open("a", encoding="utf-8") as file:
                file.write(f"{number} {world}\n")
        while number >= int((job.root / "opened").read_text(encoding="utf-8")):
            time.sleep(0.02)
        return step(*arguments)

    run.initial_method, loop.train_step = in_double_precision, gated
    try:
        return loop.train(job, rank, world, device, report)
    finally:
        run.initial_method, loop.train_step = initial, step


def open_until(root: Path, step: int) -> None:
    """Lets the steps before `step` begin."""
    partial = root / "opened.new"
    partial.write_text(str(step), encoding="utf-8")
    os.replace(partial, root / "opened")


def last_step(root: Path) -> tuple[int, int]:
    """The step that began last, and its number of workers; (-1, 0) before the first."""
    path = root / "steps"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    step, world = lines[-1].split() if lines else (-1, 0)
    return int(step), int(world)
