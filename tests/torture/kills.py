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

The kills from FIRST_OF_TRIVIAL on are of `unseen run -j 2` in the project of trivial.py: at a random time, or
by SIGKILL at a random file operation of the driver. The second run has no --force. The project then has
the bytes of an undisturbed `dvc repro`, with dvc.lock and DVC's cache, and `dvc status` is clean.

Kill n is drawn by a generator seeded by n. The campaign continues where it was stopped.
"""

import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.torture import numbered, results, shim, trivial
from tests.torture.fork import Fork, import_all
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
# Trivial stages: kills from FIRST_OF_TRIVIAL on.
FIRST_OF_TRIVIAL = FIRST_OF_SEVERAL + 40
TRIVIAL = f"{RUN}, trivial stages"
MODULES[TRIVIAL] = ("unseen.cli.run",)
MODULES[RUN] = ("unseen.cli.run", *(module for name in SINGLE for module in MODULES[name]))
TARGETS = ("driver", "stage", "all")
REPAIRED = ", lock file of DVC damaged"
_REFUSED = ("Unable to read RWLock-file", "rwlock' and try again", "'./dvc.lock' validation failed")
ENDED = ", ended before"
Driver = subprocess.Popen[bytes] | Fork
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def drawn(number: int) -> tuple[str, random.Random]:
    """The command of kill `number`, and the generator of the rest of the kill."""
    draw = random.Random(number)
    if number >= FIRST_OF_TRIVIAL:
        return TRIVIAL, draw
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
        time.sleep(draw.uniform(0, self.seconds[name]))
        ended = process.poll() is not None
        problems = _end(self.copy, process, target, sent)
        description = f"{command}, {target}, {sent.name}" + (ENDED if ended else "")
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
        problems += _differences(self.outputs, self.copy.outputs())
        problems += [f"{path} is left" for path in self.copy.leftovers() if path not in self.temporary]
        return description, problems + shared_memory_left(shared)


class CampaignOfTrivial:
    """`outputs` of an undisturbed `dvc repro`, and duration and file operations of `unseen run`, by state."""

    def __init__(self, copy: trivial.Trivial) -> None:
        self.copy = copy
        self.outputs: dict[str, dict[str, str]] = {}
        self.seconds: dict[str, float] = {}
        self.operations: dict[str, int] = {}

    def _measure(self, state: str) -> None:
        for program in ("dvc repro", RUN):
            self.copy.enter(state)
            start = time.monotonic()
            ended = self.copy.start(self.command(state, program)).ended()
            if ended.status:
                raise RuntimeError(f"{program} fails without a kill: {ended.output[-300:]}")
            import_all(ended.imported)  # once, and not in every run
            self.seconds[state], self.operations[state] = time.monotonic() - start, ended.operations
            self.outputs.setdefault(state, self.copy.outputs())

    def command(self, state: str, program: str = RUN) -> str:
        return f"{program}{' --force' if state == 'complete' else ''} {trivial.TARGET}"

    def kill(self, number: int) -> tuple[str, list[str]]:
        """Kill `number`. Returns its description, and what it broke."""
        _, draw = drawn(number)
        state = draw.choice(trivial.STATES)
        if state not in self.outputs:
            self._measure(state)
        self.copy.enter(state)
        description = f"{self.command(state)} ({state})"
        if draw.random() < 0.5:
            process = self.copy.start(self.command(state), draw.randint(1, self.operations[state]))
            description += ", file operation, SIGKILL" + ("" if process.wait() < 0 else ENDED)
            problems = _survivors(self.copy)
        else:
            target, sent = draw.choice(TARGETS), draw.choice(SIGNALS)
            process = self.copy.start(self.command(state))
            time.sleep(draw.uniform(0, self.seconds[state]))
            ended = process.poll() is not None
            self.seconds[state] *= 0.8 if ended else 1.05  # the load of the machine changes
            description += f", {target}, {sent.name}" + (ENDED if ended else "")
            problems = _end(self.copy, process, target, sent)
        for command in (f"{RUN} {trivial.TARGET}", "dvc status"):
            after = self.copy.start(command).ended()
            if after.status or (command == "dvc status" and "up to date" not in after.output):
                problems.append(f"then `{command}` has status {after.status}: {after.output[-300:]}")
        return description, [
            *problems,
            *_differences(self.outputs[state], self.copy.outputs()),
            *(f"{path} is left" for path in self.copy.leftovers()),
        ]


def _end(copy: Project, process: Driver, target: str, sent: signal.Signals) -> list[str]:
    """Sends a signal to `target`, and waits for the end of all processes. Returns those that do not end."""
    for victim in _victims(process, target):
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(sent)
    process.wait()
    return _survivors(copy)


def _survivors(copy: Project) -> list[str]:
    if within(GRACE, lambda: not copy.processes()):
        return []
    survivors = copy.processes()
    problems = [f"still runs: {' '.join(process.cmdline())[:100]}" for process in survivors]
    for survivor in survivors:
        survivor.kill()
    return problems


def _differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [
        f"{path} differs" for path in sorted(before.keys() | now.keys()) if before.get(path) != now.get(path)
    ]


def _victims(driver: Driver, target: str) -> list[psutil.Process]:
    """The driver, one stage below it (the driver if there is none yet), or all processes."""
    try:
        parent = psutil.Process(driver.pid)
        below = parent.children(recursive=True)
        stages = [process for process in below if any("stages." in part for part in process.cmdline())]
    except psutil.NoSuchProcess:
        return []
    return {"driver": [parent], "stage": stages[:1] or [parent], "all": [*below, parent]}[target]


def campaign(kills: int, state: Path, stage: str = "") -> None:
    """Runs the kills that the results lack: those below `kills`, or with one of SINGLE and TRIVIAL the first
    `kills` of this stage."""

    def row(number: int) -> tuple[str, Sequence[str]]:
        name, _ = drawn(number)
        return name, MODULES[name]

    single = range(min(kills, FIRST_OF_SEVERAL))
    several = range(FIRST_OF_SEVERAL, min(kills, FIRST_OF_TRIVIAL))
    runs = [(single, SINGLE), (several, (*SINGLE[:2], *SEVERAL))]
    trivials = range(FIRST_OF_TRIVIAL, kills)
    if stage == TRIVIAL:
        runs, trivials = [], range(FIRST_OF_TRIVIAL, FIRST_OF_TRIVIAL + kills)
    elif stage:
        of_stage = [number for number in range(FIRST_OF_SEVERAL) if drawn(number)[0] == stage]
        runs = [(of_stage[:kills], SINGLE[: SINGLE.index(stage) + 1])]
    for numbers, stages in runs:
        if numbers:
            with project(several=numbers[0] >= FIRST_OF_SEVERAL) as copy:
                numbered.campaign(numbers, state, row, Campaign(copy, stages).kill)
    if trivials:
        with trivial.project() as of_trivial:
            numbered.campaign(trivials, state, row, CampaignOfTrivial(of_trivial).kill)


if __name__ == "__main__":
    numbered.own_shared_memory()
    if shim.compiler() is None:
        raise SystemExit("The campaign needs Linux and a C compiler (cc).")
    shim.restart_with_library()
    text = "Kills at random times lose and leave nothing."
    parser = numbered.parser(text, STATE, FIRST_OF_TRIVIAL + 500)
    parser.add_argument("--stage", choices=(*SINGLE, TRIVIAL), default="", help="only kills of this stage")
    arguments = parser.parse_args()
    campaign(arguments.count, arguments.state, arguments.stage)
