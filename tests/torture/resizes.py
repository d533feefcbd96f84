"""Nodes that join and leave an elastic training: `python -m tests.torture.resizes --trainings N`.

A training has as many workers as its cluster has nodes: raylets of one CPU each on this machine, 1 to 3. At
RESIZES random steps a node joins, or the oldest leaves without notice (SIGKILL). The training continues when
the number of its workers is that of the nodes. A training is a violation unless

    it ends without an error, after each resize with the number of workers that the cluster then has
    each loss is within 1e-6 of that of one worker without a cluster, relative, and so is each metric
    no process, partial file, file of a cluster or shared memory is left

Training n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import csv
import itertools
import random
import shutil
import tempfile
import time
from pathlib import Path
from subprocess import Popen

import torch

from tests.torture import numbered, results
from tests.torture.clusters import Run
from tests.torture.numbered import shared_memory, shared_memory_left
from tests.torture.resized_training import RESIZES, SEGMENT, last_step, long_job, open_until, train
from tests.training.jobs import write_tiny_set

STATE = results.RESULTS / "resizes.json"
MODULES = ("pipeline.cluster.train_workers", "pipeline.cluster.training", "pipeline.training.loop")
MOST = 3  # nodes
LIMIT = 900.0  # seconds until a training has another number of workers
TOLERANCE = 1e-6

Rows = list[dict[str, float]]


def drawn(number: int) -> tuple[int, list[tuple[str, int]]]:
    """The first number of nodes of training `number`, and its resizes: `join` or `leave`, and the step."""
    draw = random.Random(number)
    first = nodes = draw.randint(1, MOST)
    resizes = []
    for index in range(RESIZES):
        name = "join" if nodes == 1 else "leave" if nodes == MOST else draw.choice(("join", "leave"))
        nodes += 1 if name == "join" else -1
        resizes.append((name, index * SEGMENT + draw.randint(2, SEGMENT)))
    return first, resizes


def resized(number: int, undisturbed: Rows) -> tuple[str, list[str]]:
    """Training `number`. Returns its description, and what the resizes broke."""
    nodes, resizes = drawn(number)
    shared = shared_memory()
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder, "--elastic", "--nodes", str(nodes))
        open_until(run.root, 0)
        driver = run.start()
        problems, worlds = [], [nodes]
        for name, step in [*resizes, ("end", SEGMENT * (RESIZES + 1))]:
            # The first step of a segment waits for the number of workers, the last one for the next resize.
            if not _reaches(run.root, driver, step=-1, world=nodes):
                problems.append(f"has {last_step(run.root)[1]} workers on {nodes} nodes")
                break
            open_until(run.root, step)
            if name == "end":
                break
            if not _reaches(run.root, driver, step, nodes):
                problems.append(f"is at step {last_step(run.root)[0]} instead of {step}")
                break
            nodes += 1 if name == "join" else -1
            worlds.append(nodes)
            assert driver.stdin is not None
            driver.stdin.write(f"{name}\n".encode())
            driver.stdin.flush()
        if problems:
            driver.kill()
        if (status := run.ended(driver)) != 0:
            end = run.log.read_text(encoding="utf-8", errors="replace")[-300:]
            problems.append(f"the training ends with {status}: {end}")
        else:
            problems += differences(history(run.root), undisturbed)
        problems += [f"{name} is left" for name in run.left()]
        joins = sum(later > earlier for earlier, later in itertools.pairwise(worlds))
        description = f"{joins} joins, {len(worlds) - 1 - joins} leaves: {' '.join(map(str, worlds))} workers"
        return description, problems + shared_memory_left(shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reaches(root: Path, driver: Popen[bytes], step: int, world: int) -> bool:
    """Waits until `step` or a later one has begun with this number of workers."""
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and driver.poll() is None:
        last, workers = last_step(root)
        if last >= step and workers == world:
            return True
        time.sleep(0.05)
    return False


def history(root: Path) -> Rows:
    """The rows of the history of the training in `root`."""
    outputs = long_job(root).outputs
    assert outputs is not None
    with outputs.history.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


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


def alone() -> Rows:
    """The history of the training on one worker, without Ray."""
    with tempfile.TemporaryDirectory(prefix="uc-") as folder:
        root = Path(folder)
        write_tiny_set(root)
        open_until(root, SEGMENT * (RESIZES + 1))
        train(long_job(root), 0, 1, torch.device("cpu"))
        return history(root)


def campaign(trainings: int, state: Path) -> None:
    """Runs the trainings that the results lack."""
    undisturbed = alone()
    numbered.campaign(
        range(trainings),
        state,
        lambda number: ("1 to 3", MODULES),
        lambda number: resized(number, undisturbed),
        "training",
    )


if __name__ == "__main__":
    numbered.own_shared_memory()
    text = "Nodes that join and leave change no loss and leave nothing."
    campaign(*numbered.options(text, STATE, 10, "training"))
