"""Kills of the parts of a Ray cluster at random times: `python -m tests.torture.clusters --kills N`.

A training of 40 steps has two workers (cluster_training.py), on a private cluster or on raylets of one
machine. A kill ends, by SIGKILL after a random checkpoint of the first 30 steps, or in the first seconds,

    worker      a training worker
    raylet      the raylet of the private cluster
    head        the head of the private cluster, its GCS
    driver      the process of the stage
    node        one of three raylets, each with one CPU, so that a spare remains

If the command fails, the same command runs again. A kill is a violation unless

    the command, or its second run, succeeds
    weights and history have the bytes of an undisturbed run
    no process, partial file, file of a cluster or shared memory is left

Kill n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.torture import numbered, results
from tests.torture.cluster_training import small_job
from tests.torture.numbered import shared_memory, shared_memory_left
from tests.training.jobs import write_tiny_set

STATE = results.RESULTS / "clusters.json"
MODULES = ("pipeline.cluster.train_workers", "pipeline.cluster.training", "pipeline.training.loop")
TARGETS = ("worker", "raylet", "head", "driver", "node")
MARK = "UNSEEN_CAMPAIGN"  # a variable that every process of a run inherits
LIMIT = 900.0  # seconds of a run
GRACE = 60.0  # seconds until the last process has ended
# of the command line of the victim
NAMES = {"worker": "RayTrainWorker", "raylet": "raylet/raylet", "head": "gcs_server"}


def drawn(number: int) -> tuple[str, random.Random]:
    """The target of kill `number`, and the generator of the rest of the kill."""
    return TARGETS[number % len(TARGETS)], random.Random(number)


class Run:
    """A training in its own project, with its own files of Ray."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.root, self.temporary = folder / "project", folder / "r"
        self.temporary.mkdir()
        write_tiny_set(self.root)
        self.arguments = arguments
        self.mark = folder.name
        self.log = folder / "output"

    def start(self) -> subprocess.Popen[bytes]:
        removed = ("RAY_ADDRESS", "UNSEEN_RAY_WAIT")
        environment = {name: value for name, value in os.environ.items() if name not in removed}
        environment |= {MARK: self.mark, "RAY_TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"}
        environment |= {"PYTHONPATH": str(results.ROOT), "RAY_worker_niceness": "0"}
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.torture.cluster_training", str(self.root), *self.arguments],
                cwd=results.ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def reached(self, step: int) -> bool:
        """Whether a checkpoint of this step or a later one was written; False for step 0."""
        states = (self.root / "data/state/tiny/baseline").glob("0-*/*.pt")
        return bool(step) and any(int(path.stem) >= step for path in states)

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
        outputs = small_job(self.root).outputs
        assert outputs is not None
        paths = [*outputs.model.glob("*"), outputs.history]
        return {path.name: path.read_bytes() for path in paths if path.is_file()}

    def processes(self) -> list[psutil.Process]:
        """The processes of the run, by the variable that they inherited."""
        marked = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    marked.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return marked

    def victim(self, target: str, driver: subprocess.Popen[bytes]) -> psutil.Process | None:
        """The process to kill; None if there is none yet or any more."""
        if target == "driver":
            return psutil.Process(driver.pid)
        for process in self.processes():
            try:
                if NAMES[target] in " ".join(process.cmdline()):
                    return process
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
        return None

    def left(self) -> list[str]:
        """Processes after GRACE seconds, partial files, and files of clusters."""
        deadline = time.monotonic() + GRACE
        while (processes := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.5)
        names = [f"process {' '.join(process.cmdline())[:80]}" for process in processes]
        for process in processes:
            process.kill()
        names += [str(path.relative_to(self.root)) for path in self.root.rglob("*.partial")]
        names += [f"state {path.name}" for path in (self.root / "data/state/tiny/baseline").glob("*")]
        return names + [f"ray/{path.name}" for path in self.temporary.glob("unseen-*")]


def _arguments(target: str) -> list[str]:
    return ["--nodes", "3"] if target == "node" else []


def kill(number: int, undisturbed: dict[str, bytes]) -> tuple[str, list[str]]:
    """Kill `number`. Returns its description, and what it broke."""
    target, draw = drawn(number)
    shared = shared_memory()
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder, *_arguments(target))
        driver = run.start()
        step = 2 * draw.randint(0, 15)
        deadline = time.monotonic() + (LIMIT if step else draw.uniform(2, 15))
        while driver.poll() is None and time.monotonic() < deadline and not run.reached(step):
            time.sleep(0.02)
        description = f"{target} after step {step}" if step else f"{target} in the first seconds"
        if driver.poll() is not None:
            description += ", ended before"
        elif target == "node":
            assert driver.stdin is not None
            driver.stdin.write(b"leave\n")
            driver.stdin.flush()
        elif (victim := run.victim(target, driver)) is None:
            description += ", not started"
        else:
            victim.kill()
        problems = []
        if run.ended(driver) != 0:
            description += ", second run"
            if (status := run.ended(run.start())) != 0:
                end = run.log.read_text(encoding="utf-8", errors="replace")[-300:]
                problems.append(f"the second run ends with {status}: {end}")
        outputs = run.outputs()
        problems += [
            f"{name} differs"
            for name in sorted(outputs.keys() | undisturbed.keys())
            if outputs.get(name) != undisturbed.get(name)
        ]
        problems += [f"{name} is left" for name in run.left()]
        return description, problems + shared_memory_left(shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _undisturbed(target: str) -> dict[str, bytes]:
    """The outputs of a run without a kill."""
    folder = Path(tempfile.mkdtemp(prefix="uc-"))
    try:
        run = Run(folder, *_arguments(target))
        if (status := run.ended(run.start())) != 0:
            end = run.log.read_text(encoding="utf-8", errors="replace")[-500:]
            raise RuntimeError(f"the training ends with {status} without a kill: {end}")
        return run.outputs()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def campaign(kills: int, state: Path) -> None:
    """Runs the kills that the results lack."""
    undisturbed: dict[bool, dict[str, bytes]] = {}

    def case(number: int) -> tuple[str, list[str]]:
        target = drawn(number)[0]
        on_nodes = target == "node"
        if on_nodes not in undisturbed:
            undisturbed[on_nodes] = _undisturbed(target)
        return kill(number, undisturbed[on_nodes])

    numbered.campaign(range(kills), state, lambda number: ("two workers", MODULES), case)


if __name__ == "__main__":
    numbered.own_shared_memory()
    campaign(*numbered.options("Kills of parts of a cluster lose and leave nothing.", STATE, 50))
