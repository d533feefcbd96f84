"""Kills of the parts of a Ray cluster at random times: `python -m tests.torture.clusters --kills N`.

A training of 48 steps has two workers (cluster_training.py). A kill ends, by SIGKILL at a random time after a
random one of the first 30 steps, or in the first seconds,

    worker          a training worker
    raylet          the raylet of a private cluster
    head            the head of a private cluster, its GCS
    driver          the process of the stage
    run cluster     the process that holds the private cluster of a parallel run
    node            one of three raylets of one CPU each, with its worker, so that a spare remains
    last node       one of two such raylets; a node joins some seconds after a message names the lost one
    other workers   the process of the stage; the second run has one or three workers

The training cannot end before the kill is noticed: its last steps begin when the command has ended or has
started its workers again. Otherwise, after NOTICE seconds, the kill was without effect. If the command fails,
the same command runs again. A kill is a violation unless

    the command, or its second run, succeeds
    weights and history have the bytes of an undisturbed run; with another number of workers, losses and
    metrics are within 1e-6 (relative) of those of one worker
    no process, partial file, file of a cluster or shared memory is left

Kill n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from tests.torture import numbered, results
from tests.torture.cluster_training import SEGMENTS, WORKER
from tests.torture.gated_training import (
    SEGMENT,
    Rows,
    alone,
    differences,
    gated_job,
    history,
    last_step,
    open_until,
)
from tests.torture.numbered import WITHOUT_EFFECT, shared_memory, shared_memory_left, within
from tests.training.jobs import states_of, write_tiny_set

STATE = results.RESULTS / "clusters.json"
RUN_CLUSTER = "unseen.cluster.run_cluster"
MODULES = ("unseen.cluster.train_workers", "unseen.cluster.training", "unseen.training.loop")
MODULES += ("unseen.cluster.launcher", RUN_CLUSTER)
# arguments of the training
TARGETS = {
    "worker": (),
    "raylet": (),
    "head": (),
    "driver": (),
    "run cluster": ("--run-cluster",),
    "node": ("--nodes", "3"),
    "last node": ("--nodes", "2"),
    "other workers": (),
}
# of the command line of the victim
NAMES = {"worker": WORKER, "raylet": "raylet/raylet", "head": "gcs_server", "run cluster": RUN_CLUSTER}
MARK = "UNSEEN_CAMPAIGN"  # a variable that every process of a run inherits
LIMIT = 900.0  # seconds of a run
NOTICE = 120.0  # seconds until a kill has had an effect
GRACE = 60.0  # seconds until the last process has ended
AHEAD = 8  # steps that may begin after the step of the kill


@dataclass(frozen=True)
class Kill:
    """A kill `seconds` after `step` has begun, or, for step 0, after the start of the command."""

    target: str
    step: int
    seconds: float
    workers: int = 2  # of the second run

    def __str__(self) -> str:
        return f"after step {self.step}" if self.step else "in the first seconds"


def drawn(number: int) -> Kill:
    """Kill `number`."""
    draw = random.Random(number)
    target = list(TARGETS)[number % len(TARGETS)]
    resumes = target in ("last node", "other workers")
    step = 2 * draw.randint(int(resumes), 15)
    seconds = draw.uniform(0, 0.5) if step else draw.uniform(2, 15)
    return Kill(target, step, seconds, draw.choice((1, 3)) if target == "other workers" else 2)


class Run:
    """A training in its own project, with its own files of Ray. Its first step waits."""

    def __init__(self, folder: Path, *arguments: str, launcher: tuple[str, ...] = ()) -> None:
        self.root, self.temporary = folder / "project", folder / "r"
        self.temporary.mkdir()
        write_tiny_set(self.root)
        open_until(self.root, 0)
        self.arguments, self.launcher = arguments, launcher
        self.mark = folder.name
        self.log = folder / "output"

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        removed = ("RAY_ADDRESS", "UNSEEN_RAY_WAIT", "UNSEEN_RUN_CLUSTER")
        environment = {name: value for name, value in os.environ.items() if name not in removed}
        environment |= {MARK: self.mark, "RAY_TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(results.ROOT), "RAY_worker_niceness": "0"}
        module = "tests.torture.cluster_training"
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", *self.launcher, module, str(self.root), *self.arguments, *more],
                cwd=results.ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def printed(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def restarted(self) -> bool:
        """Whether the command that runs has started its workers again."""
        return any(self.root.glob("data/state/ray/*/run-1"))

    def ended(self, process: subprocess.Popen[bytes]) -> int | None:
        """The exit status, or None after LIMIT seconds, when the process is killed."""
        try:
            return process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None

    def outputs(self) -> dict[str, bytes]:
        """Weights and history."""
        outputs = gated_job(self.root, SEGMENTS).outputs
        assert outputs is not None
        paths = [*outputs.model.glob("*"), outputs.history]
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def processes(self, part: str = "") -> list[psutil.Process]:
        """The processes of the run, by the variable that they inherited, whose command contains `part`."""
        marked = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) != self.mark or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if part in " ".join(process.cmdline()):
                    marked.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return marked

    def kill(self, target: str, driver: subprocess.Popen[bytes]) -> bool:
        """Ends a part of the cluster; False if it does not exist yet or any more."""
        if "--nodes" in TARGETS[target]:
            tell(driver, "leave")
            return True
        if target not in NAMES:
            driver.kill()
            return True
        for process in self.processes(NAMES[target]):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
                return True
        return False

    def left(self) -> list[str]:
        """Processes after GRACE seconds, partial files, and files of clusters."""
        within(GRACE, lambda: not self.processes(), 0.5)
        processes = self.processes()
        names = [f"process {' '.join(process.cmdline())[:80]}" for process in processes]
        for process in processes:
            process.kill()
        names += [str(path.relative_to(self.root)) for path in self.root.rglob("*.partial")]
        names += [f"state {path.name}" for path in states_of(gated_job(self.root, SEGMENTS))]
        return names + [f"ray/{path.name}" for path in self.temporary.glob("unseen-*")]


def tell(driver: subprocess.Popen[bytes], command: str) -> None:
    """Sends `leave` or `join` to a training on nodes."""
    assert driver.stdin is not None
    driver.stdin.write(f"{command}\n".encode())
    driver.stdin.flush()


def killed(kill: Kill, undisturbed: dict[str, bytes] | Rows) -> tuple[str, list[str]]:
    """The description of a kill, and what it broke. `undisturbed`: weights and history of two workers, or the
    history of one."""
    shared = shared_memory()
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder, *TARGETS[kill.target])
        effect, problems = _effect(run, kill, driver := run.start())
        open_until(run.root, SEGMENT * SEGMENTS)
        if run.ended(driver) != 0:
            effect += ", second run"
            if (status := run.ended(run.start("--workers", str(kill.workers)))) != 0:
                problems.append(f"the second run ends with {status}: {run.printed()[-300:]}")
        if isinstance(undisturbed, dict):
            outputs = run.outputs()
            problems += [
                f"{name} differs"
                for name in sorted(outputs.keys() | undisturbed.keys())
                if outputs.get(name) != undisturbed.get(name)
            ]
        elif not problems:
            problems += differences(history(run.root), undisturbed)
        problems += [f"{name} is left" for name in run.left()]
        return f"{kill}, {effect}", problems + shared_memory_left(shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _effect(run: Run, kill: Kill, driver: subprocess.Popen[bytes]) -> tuple[str, list[str]]:
    """Kills a part of a training that has started. Returns the effect, and what it broke."""
    if kill.step:
        open_until(run.root, kill.step + AHEAD)
        within(LIMIT, lambda: driver.poll() is not None or last_step(run.root)[0] >= kill.step)
    time.sleep(kill.seconds)
    if driver.poll() is not None:
        return f"{WITHOUT_EFFECT}: ended before", []
    if not run.kill(kill.target, driver):
        return f"{WITHOUT_EFFECT}: not started", []
    problems = []
    if kill.target == "last node":
        waiting = within(NOTICE, lambda: driver.poll() is not None or " left" in run.printed())
        if not waiting or driver.poll() is not None:
            problems.append(f"no message names the lost node: {run.printed()[-300:]}")
        time.sleep(3)
        tell(driver, "join")
    if not within(NOTICE, lambda: driver.poll() is not None or run.restarted()):
        return WITHOUT_EFFECT, problems
    return "command ended" if driver.poll() is not None else "workers restarted", problems


def _undisturbed() -> dict[str, bytes]:
    """The outputs of a run without a kill."""
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder)
        open_until(run.root, SEGMENT * SEGMENTS)
        if (status := run.ended(run.start())) != 0:
            raise RuntimeError(f"the training ends with {status} without a kill: {run.printed()[-500:]}")
        return run.outputs()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def campaign(kills: int, state: Path) -> None:
    """Runs the kills that the results lack."""
    of_two = cache(_undisturbed)

    def case(number: int) -> tuple[str, list[str]]:
        kill = drawn(number)
        return killed(kill, of_two() if kill.workers == 2 else alone(SEGMENTS))

    numbered.campaign(range(kills), state, lambda number: (drawn(number).target, MODULES), case)


if __name__ == "__main__":
    numbered.own_shared_memory()
    campaign(*numbered.options("Kills of parts of a cluster lose and leave nothing.", STATE, 80))
