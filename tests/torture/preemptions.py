"""Preemptions of the workers of a training: `python -m tests.torture.preemptions --trainings N`.

A training of 96 steps has two workers on a private cluster (cluster_training.py). Three times, after a random
step, one of them is lost:

    notice          it receives SIGTERM and ends some seconds later
    short notice    it receives SIGTERM, and within a second SIGKILL, which often meets a checkpoint
    kill            it receives SIGKILL

A step begins every PACE seconds. A training is a violation unless the same command goes on after each loss
and succeeds, weights and history have the bytes of an undisturbed run, and no process, partial file, file of
a cluster or shared memory is left. The steps that began again are counted; the interrupted one is among them.

Training n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psutil

from tests.torture import numbered, results
from tests.torture.cluster_training import WORKER
from tests.torture.clusters import LIMIT, MODULES, NOTICE, Run
from tests.torture.gated_training import SEGMENT, last_step, open_until, starts_of, steps_of
from tests.torture.numbered import shared_memory, shared_memory_left

STATE = results.RESULTS / "preemptions.json"
KINDS = ("notice", "short notice", "kill")
SEGMENTS = 8
PACE = 0.4  # seconds of a step
_MODULES = (*MODULES, "unseen.cluster.notice")


@dataclass(frozen=True)
class Loss:
    """The loss of a worker after `step` has begun; of a short notice, `seconds` after it."""

    step: int
    seconds: float


def drawn(number: int) -> tuple[str, list[Loss]]:
    """The kind and the losses of training `number`."""
    draw = random.Random(number)
    steps = [draw.randint(first, first + 8) for first in (2, 30, 58)]
    return KINDS[number % len(KINDS)], [Loss(step, draw.random()) for step in steps]


class Gate:
    """Lets a step of a training begin every PACE seconds, as long as its steps begin."""

    def __init__(self, root: Path) -> None:
        self.root, self.opened = root, 0

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether the condition becomes true in time."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.opened = min(last_step(self.root)[0] + 2, SEGMENT * SEGMENTS)
            open_until(self.root, self.opened)
            time.sleep(PACE)
        return True


def trained(number: int, undisturbed: dict[str, bytes] | None) -> tuple[str, list[str], dict[str, bytes]]:
    """The steps that began again after each loss, what was broken, and the outputs. Without `undisturbed`
    nothing is lost."""
    kind, losses = drawn(number)
    shared, folder = shared_memory(), Path(tempfile.mkdtemp(prefix="up-"))
    try:
        run = Run(folder)
        driver, gate, problems = run.start("--segments", str(SEGMENTS)), Gate(run.root), []
        for index, loss in enumerate(losses if undisturbed is not None else []):
            gate.until(partial(_has_begun, run, driver, loss.step), LIMIT)
            _lose(kind, loss, run)
            if not gate.until(partial(_has_started, run, index + 2), NOTICE):
                problems.append(f"the workers did not start again: {run.printed()[-300:]}")
                break
        gate.until(lambda: driver.poll() is not None, LIMIT)
        if run.ended(driver) != 0:
            problems.append(f"the training ends with {driver.returncode}: {run.printed()[-300:]}")
        steps, outputs = steps_of(run.root), run.outputs()
        starts = [start for start in starts_of(run.root)[1:] if start < len(steps)]
        again = [steps[start - 1] - steps[start] + 1 for start in starts]
        if undisturbed is not None:
            names = sorted(outputs.keys() | undisturbed.keys())
            problems += [f"{name} differs" for name in names if outputs.get(name) != undisturbed.get(name)]
        problems += [f"{name} is left" for name in run.left()]
        return ", ".join(map(str, again)), problems + shared_memory_left(shared), outputs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_begun(run: Run, driver: subprocess.Popen[bytes], step: int) -> bool:
    return driver.poll() is not None or last_step(run.root)[0] >= step


def _has_started(run: Run, times: int) -> bool:
    return len(starts_of(run.root)) >= times


def _lose(kind: str, loss: Loss, run: Run) -> None:
    """Ends a worker."""
    workers = [process for process in run.processes() if WORKER in " ".join(process.cmdline())]
    if not workers:
        return
    worker = workers[int(loss.seconds * 1000) % len(workers)]
    if kind != "kill":
        worker.send_signal(signal.SIGTERM)
    if kind == "short notice":
        time.sleep(loss.seconds)
    if kind != "notice":
        try:
            worker.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            return


def campaign(trainings: int, state: Path) -> None:
    """Runs the trainings that the results lack."""
    undisturbed = cache(lambda: trained(0, None)[2])

    def case(number: int) -> tuple[str, list[str]]:
        return trained(number, undisturbed())[:2]

    numbered.campaign(
        range(trainings), state, lambda number: (drawn(number)[0], _MODULES), case, kind="training"
    )


if __name__ == "__main__":
    numbered.own_shared_memory()
    description = "Preemptions of workers lose and leave nothing."
    campaign(*numbered.options(description, STATE, 30, kind="training"))
