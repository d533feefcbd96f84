"""A campaign of numbered cases that continues where it was stopped. Each case is drawn by its number."""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.torture import results

WITHOUT_EFFECT = "without effect"  # in the description of a kill that changed nothing
_NAMESPACE = ("unshare", "--map-root-user", "--mount")
_OWN = "UNSEEN_TORTURE_SHARED_MEMORY"  # set in the program that has its own
_MAPPED = re.compile(r" /dev/shm/([^/\n]*?)(?: \(deleted\))?$", re.MULTILINE)  # a line of /proc/PID/maps


def campaign(
    numbers: Iterable[int],
    state: Path,
    row: Callable[[int], tuple[str, Sequence[str]]],
    case: Callable[[int], tuple[str, list[str]]],
    kind: str = "kill",
) -> None:
    """Runs the cases with these `numbers` that the results in `state` lack.

    `row` gives the name of the result that case n belongs to and the modules that the case executes, `case`
    runs it and returns its description and its violations.
    """
    recorded = results.load(state)
    for number in numbers:
        result = results.current(recorded, *row(number))
        done = result.setdefault(f"{kind}s", {})
        if str(number) in done:
            continue
        start = _cpu_seconds()
        description, problems = case(number)
        done[str(number)] = {kind: description, "violations": problems}
        result["cpu_seconds"] = result.get("cpu_seconds", 0.0) + _cpu_seconds() - start
        results.save(state, recorded)
        print(f"{number}: {description}: {'; '.join(problems) or 'ok'}", flush=True)


def options(description: str, state: Path, count: int, kind: str = "kill") -> tuple[int, Path]:
    """The number of cases and the file of the results, from the command line."""
    arguments = parser(description, state, count, kind).parse_args()
    return arguments.count, arguments.state


def parser(description: str, state: Path, count: int, kind: str = "kill") -> argparse.ArgumentParser:
    """The command line of `options`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(f"--{kind}s", type=int, default=count, dest="count")
    parser.add_argument("--state", type=Path, default=state, help="file of the results")
    return parser


def own_shared_memory() -> None:
    """Starts this program again with an empty /dev/shm of its own, if the system allows it: other programs of
    the machine leave names there, too."""
    if not shutil.which(_NAMESPACE[0]) or _OWN in os.environ:
        return
    if subprocess.run([*_NAMESPACE, "true"], check=False).returncode:
        return
    os.environ[_OWN] = "1"
    mount = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    os.execvp(_NAMESPACE[0], [*_NAMESPACE, "sh", "-c", mount, "sh", sys.executable, *sys.orig_argv[1:]])


def shared_memory() -> set[str]:
    """The names of shared memory that no living process maps. A name that is mapped may be of another user of
    the machine."""
    names = {path.name for path in Path("/dev/shm").iterdir()}
    mapped: set[str] = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            mapped |= set(_MAPPED.findall(maps.read_text(encoding="utf-8", errors="replace")))
        except OSError:  # the process ended, or belongs to another user
            continue
    return names - mapped


def shared_memory_left(before: set[str]) -> list[str]:
    """A violation for each name of shared memory that was not there `before`."""
    left = shared_memory() - before
    if left:  # that of another process of the machine may have ended during the scan
        time.sleep(2)
        left &= shared_memory()
    return [f"/dev/shm/{name} is left" for name in sorted(left)]


def within(seconds: float, condition: Callable[[], bool], pause: float = 0.05) -> bool:
    """Whether the condition becomes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
