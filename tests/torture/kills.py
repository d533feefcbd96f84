"""Kills at random times: `python -m tests.torture.kills --kills N`.

The project is the miniature one of operations.py as a git repository, in a folder with a space and a letter
outside ASCII. Only sweeps use Ray. A kill runs one stage by `dvc repro --single-item --force`, or every
stage by `unseen run -j 2 --force`, and ends the driver, the process of a stage, or all processes by SIGKILL,
SIGTERM or SIGINT at a random time. Then the same command runs again. A kill is a violation unless

    all processes end within GRACE seconds
    the second run succeeds without any repair, or by `unseen run` if DVC's own lock file is damaged
    each output has the bytes of an undisturbed run
    no partial file, lock, temporary file or shared memory is left, after the next stage has started: DVC may
    restore the outputs of the killed stage from its run cache, and then the second run starts none

Kill n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.torture import numbered, results
from tests.torture.miniature import Project, project
from tests.torture.numbered import shared_memory, shared_memory_left, within

GRACE = 60.0
YOUNG = 11.0  # seconds after which a file without lock counts as left over
STATE = results.RESULTS / "kills.json"
RUN = "unseen run -j 2"
_CELL = "@parts-ms-0"
SINGLE = ("resolve", "ingest@parts")
SINGLE += (*(f"{name}{_CELL}" for name in ("train", "export", "evaluate", "analyze")), "report")
# Several trainings of a method: kills from FIRST_OF_SEVERAL on, in a project of their own.
FIRST_OF_SEVERAL = 200
_FOLDS = ("@parts-ms-1-0", "@parts-ms-2-0")
SEVERAL = ("sweep@parts-ms", *(f"train_fold{fold}" for fold in _FOLDS))
SEVERAL += (*(f"export_fold{fold}" for fold in _FOLDS), "ensemble@parts-ms")
# command -> the modules that it executes
MODULES = {
    name: (f"unseen.stages.{name.partition('@')[0]}", "unseen.data.ingest.sources.parts")
    for name in (*SINGLE, *SEVERAL)
}
MODULES[RUN] = ("unseen.cli.run", *(module for name in SINGLE for module in MODULES[name]))
TARGETS = ("driver", "stage", "all")
REPAIRED = ", lock file of DVC damaged"
_REFUSED = ("Unable to read RWLock-file", "rwlock' and try again", "'./dvc.lock' validation failed")
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def drawn(number: int) -> tuple[str, random.Random]:
    """The command of kill `number`, and the generator of the rest of the kill."""
    draw = random.Random(number)
    return draw.choice((*SINGLE, *SINGLE, RUN) if number < FIRST_OF_SEVERAL else SEVERAL), draw


class Campaign:
    """The undisturbed run of `stages`, and how long each command takes."""

    def __init__(self, copy: Project, stages: Sequence[str]) -> None:
        self.copy = copy
        self.seconds: dict[str, float] = {}
        for name in stages:
            start = time.monotonic()
            if problem := copy.run(f"dvc repro --single-item {name}"):
                raise RuntimeError(f"{name} fails without a kill: {problem}")
            self.seconds[name] = time.monotonic() - start
        self.seconds[RUN] = sum(self.seconds.values())
        self.outputs = copy.outputs()
        self.temporary = set(copy.leftovers())

    def kill(self, number: int) -> tuple[str, list[str]]:
        """Kill `number`. Returns its description, and what it broke."""
        name, draw = drawn(number)
        target, sent = draw.choice(TARGETS), draw.choice(SIGNALS)
        command = f"{RUN} --force" if name == RUN else f"dvc repro --single-item --force {name}"
        shared = shared_memory()
        process = self.copy.start(command)
        moment = draw.uniform(0, self.seconds[name])
        time.sleep(moment)
        ended = process.poll() is not None
        for victim in _victims(process, target):
            try:
                victim.send_signal(sent)
            except psutil.NoSuchProcess:
                continue
        process.wait()
        description = f"{command}, {target}, {sent.name}" + (", ended before" if ended else "")
        problems = []
        if not within(GRACE, lambda: not self.copy.processes()):
            problems += [
                f"still runs: {' '.join(process.cmdline())[:100]}" for process in self.copy.processes()
            ]
            for survivor in self.copy.processes():
                survivor.kill()
        problem = self.copy.run(command.replace(" --force", ""))
        if problem is not None and any(text in problem for text in _REFUSED) and name != RUN:
            description += REPAIRED
            problem = self.copy.run(RUN)
        if problem is not None:
            problems.append(f"the next run fails: {problem}")
        if set(self.copy.leftovers()) - self.temporary:
            time.sleep(YOUNG)
            if problem := self.copy.run(f"dvc repro --single-item --force {SINGLE[0]}"):
                problems.append(f"the next stage fails: {problem}")
        outputs = self.copy.outputs()
        problems += [
            f"{path} differs"
            for path in sorted(outputs.keys() | self.outputs.keys())
            if outputs.get(path) != self.outputs.get(path)
        ]
        problems += [f"{path} is left" for path in self.copy.leftovers() if path not in self.temporary]
        return description, problems + shared_memory_left(shared)


def _victims(driver: subprocess.Popen[bytes], target: str) -> list[psutil.Process]:
    """The driver, one stage below it (the driver if there is none yet), or all processes."""
    try:
        parent = psutil.Process(driver.pid)
        below = parent.children(recursive=True)
        stages = [process for process in below if any("stages." in part for part in process.cmdline())]
    except psutil.NoSuchProcess:
        return []
    return {"driver": [parent], "stage": stages[:1] or [parent], "all": [*below, parent]}[target]


def campaign(kills: int, state: Path, stage: str = "") -> None:
    """Runs the kills that the results lack: those below `kills`, or with one of SINGLE the first `kills` of
    this stage."""

    def row(number: int) -> tuple[str, Sequence[str]]:
        name, _ = drawn(number)
        return name, MODULES[name]

    single = range(min(kills, FIRST_OF_SEVERAL))
    runs = [(single, SINGLE), (range(FIRST_OF_SEVERAL, kills), (*SINGLE[:2], *SEVERAL))]
    if stage:
        of_stage = [number for number in range(FIRST_OF_SEVERAL) if drawn(number)[0] == stage]
        runs = [(of_stage[:kills], SINGLE[: SINGLE.index(stage) + 1])]
    for numbers, stages in runs:
        if numbers:
            with project(several=numbers[0] >= FIRST_OF_SEVERAL) as copy:
                numbered.campaign(numbers, state, row, Campaign(copy, stages).kill)


if __name__ == "__main__":
    numbered.own_shared_memory()
    text = "Kills at random times lose and leave nothing."
    parser = numbered.parser(text, STATE, FIRST_OF_SEVERAL + 40)
    parser.add_argument("--stage", choices=SINGLE, default="", help="only kills of this stage")
    arguments = parser.parse_args()
    campaign(arguments.count, arguments.state, arguments.stage)
