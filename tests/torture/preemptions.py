"""Preemptions of the workers of a training: `python -m tests.torture.preemptions --trainings N`.

A training has two workers (cluster_training.py). LOSSES times, some steps after it started or resumed, a
worker or a node is lost:

    notice          a worker receives SIGTERM and ends some seconds later
    short notice    it receives SIGTERM, and within a second SIGKILL
    checkpoint      it receives SIGTERM; both receive SIGKILL as soon as a checkpoint is being written
    kill            it receives SIGKILL
    drained node    a raylet of one CPU drains, and is killed 10 s later with its worker
    lost node       such a raylet is killed with its worker

The workers are on a private cluster, or on such raylets, of which one is a spare. From a notice to the end a
step begins every PACE seconds. A training is a violation unless the same command goes on after each loss and
succeeds, weights and history have the bytes of an undisturbed run, and no process, partial file, file of a
cluster or shared memory is left. The steps that began again are counted; the interrupted one is among them.
Three losses without a new checkpoint in between would end a training: one is due every two steps, and each
start takes four steps or more.

Training n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import contextlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psutil

from tests.torture import numbered, results
from tests.torture.cluster_training import WORKER
from tests.torture.clusters import LIMIT, MODULES, NOTICE, Run, tell
from tests.torture.gated_training import last_step, open_until, starts_of, steps_of
from tests.torture.numbered import shared_memory, shared_memory_left, within

STATE = results.RESULTS / "preemptions.json"
_NODES = ("--nodes", "3")
KINDS: dict[str, tuple[str, ...]] = {  # with arguments of the training
    "notice": (),
    "short notice": (),
    "checkpoint": (),
    "kill": (),
    "drained node": (*_NODES, "--drains"),
    "lost node": _NODES,
}
LOSSES = 10
_SEGMENTS = {"notice": 36, "drained node": 36}  # the others 16: more than the steps of all losses
_FAST = ("--batch-norm", "frozen")  # an exchange of its statistics would take half of a step
PACE = 0.5  # seconds of a step after a notice
_MODULES = (*MODULES, "unseen.cluster.notice")


@dataclass(frozen=True)
class Loss:
    """A loss after `steps` steps of a start of the workers; `seconds` after a short notice. `worker`: the
    one that receives a signal, by process id."""

    steps: int
    seconds: float
    worker: int


def drawn(number: int) -> tuple[str, list[Loss]]:
    """The kind and the losses of training `number`."""
    draw = random.Random(number)
    losses = [Loss(draw.randint(4, 8), draw.random(), draw.randint(0, 1)) for _ in range(LOSSES)]
    return list(KINDS)[number % len(KINDS)], losses


def _segments(kind: str) -> int:
    return _SEGMENTS.get(kind, 16)


def _paced(run: Run, condition: Callable[[], bool], pace: float, seconds: float) -> bool:
    """Lets a step begin every `pace` seconds, as long as steps begin. Whether the condition becomes true in
    time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        open_until(run.root, last_step(run.root)[0] + 2)
        time.sleep(pace)
    return True


def trained(number: int, undisturbed: dict[str, bytes] | None) -> tuple[str, list[str], dict[str, bytes]]:
    """The steps that began again after each loss, what was broken, and the outputs. Without `undisturbed`
    nothing is lost."""
    kind, losses = drawn(number)
    shared, folder = shared_memory(), Path(tempfile.mkdtemp(prefix="up-"))
    try:
        run, problems = Run(folder, *KINDS[kind], launcher=("tests.torture.forked_workers",)), []
        driver = run.start("--segments", str(_segments(kind)), *_FAST)
        for index, loss in enumerate(losses if undisturbed is not None else []):
            _paced(run, partial(_has_begun, run, driver, index, loss.steps), 0.05, LIMIT)
            if driver.poll() is not None:  # a training may end before a node that drains is lost
                break
            _lose(kind, loss, run, driver)
            if not _paced(run, partial(_has_started, run, driver, index + 2), PACE, NOTICE):
                problems.append(f"the workers did not start again: {run.printed()[-300:]}")
                break
        _paced(run, lambda: driver.poll() is not None, 0.05, LIMIT)
        if run.ended(driver) != 0:
            problems.append(f"the training ends with {driver.returncode}: {run.printed()[-300:]}")
        steps, outputs = steps_of(run.root), run.outputs()
        if not steps:  # nothing could be lost
            raise RuntimeError(f"no step of training {number} began: {run.printed()[-1000:]}")
        starts = [start for start in starts_of(run.root)[1:] if start < len(steps)]
        again = [steps[start - 1] - steps[start] + 1 for start in starts]
        if undisturbed is not None:
            names = sorted(outputs.keys() | undisturbed.keys())
            problems += [f"{name} differs" for name in names if outputs.get(name) != undisturbed.get(name)]
        problems += [f"{name} is left" for name in run.left()]
        return ", ".join(map(str, again)), problems + shared_memory_left(shared), outputs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_begun(run: Run, driver: subprocess.Popen[bytes], start: int, steps: int) -> bool:
    """Whether `steps` steps have begun since a start of the workers."""
    starts = starts_of(run.root)
    return driver.poll() is not None or (
        len(starts) > start and len(steps_of(run.root)) >= starts[start] + steps
    )


def _has_started(run: Run, driver: subprocess.Popen[bytes], times: int) -> bool:
    """Whether the workers have started `times` times, or the training has ended."""
    return driver.poll() is not None or len(starts_of(run.root)) >= times


def _lose(kind: str, loss: Loss, run: Run, driver: subprocess.Popen[bytes]) -> None:
    """Ends a worker or a node."""
    if kind.endswith("node"):
        for command in ("drain",) if kind == "drained node" else ("leave", "join"):
            tell(driver, command)
        return
    workers = run.processes(WORKER)
    assert len(workers) == 2, workers
    if kind != "kill":
        workers[loss.worker].send_signal(signal.SIGTERM)
    if kind == "short notice":
        time.sleep(loss.seconds)
    if kind == "checkpoint":
        open_until(run.root, last_step(run.root)[0] + 4)
        within(NOTICE, lambda: any(run.root.glob("data/state/tiny/*/*/.*.partial")), 0.0)
    for worker in workers if kind == "checkpoint" else [] if kind == "notice" else [workers[loss.worker]]:
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()


def campaign(numbers: Iterable[int], state: Path) -> None:
    """Runs the trainings with these `numbers` that the results lack."""
    first = {_segments(kind): number for number, kind in reversed(list(enumerate(KINDS)))}
    undisturbed = cache(lambda segments: trained(first[segments], None)[2])

    def case(number: int) -> tuple[str, list[str]]:
        return trained(number, undisturbed(_segments(drawn(number)[0])))[:2]

    numbered.campaign(numbers, state, lambda number: (drawn(number)[0], _MODULES), case, kind="training")


if __name__ == "__main__":
    numbered.own_shared_memory()
    description = "Preemptions of workers lose and leave nothing."
    trainings, file = numbered.options(description, STATE, 30, kind="training")
    campaign(range(trainings), file)
