"""Reads untrusted cases in processes under limits, and counts what happens.

A case gets MEMORY bytes of address space in addition to that of the process before the first case. It is
read, is refused (an exception of the documented kinds, with a message), or is a violation:

    another exception, also MemoryError
    more than SECONDS of CPU time, or no end within WALL seconds
    a process or a connection that is started
    a file that is created, changed or removed outside the scratch folder

Python reports operations on files and processes to an audit hook (PEP 578). Those of C libraries are visible
only if they end the process.
"""

import faulthandler
import json
import mmap
import os
import re
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unseen.runtime.errors import UserError

SECONDS = 3.0  # of CPU time of all threads
WALL = 60.0
MEMORY = 2**30
Case = tuple[str, Any]  # its name, and the input of the reader
Read = Callable[[Any], object]
Refusals = tuple[type[Exception], ...]
REFUSALS: Refusals = (ValueError, UserError)
_STARTS = re.compile(r"subprocess\.Popen|os\.(system|exec|posix_spawn|fork|forkpty)|socket\.(connect|sendto)")
# event -> positions of its arguments that are paths
_CHANGES = {
    "os.remove": (0,),
    "os.rmdir": (0,),
    "os.mkdir": (0,),
    "os.truncate": (0,),
    "os.chmod": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_COUNTERS = struct.Struct("<4q")  # number of the current case; cases read, refused, refused for memory


_OUTCOMES = ("read", "refused", "limited")


@dataclass
class Counts:
    """What happened to the cases of one kind."""

    read: int = 0
    refused: int = 0
    limited: int = 0  # refused because MEMORY did not suffice
    cpu_seconds: float = 0.0
    violations: dict[str, str] = field(default_factory=dict)  # by the name of the case

    @property
    def cases(self) -> int:
        return self.read + self.refused + self.limited + len(self.violations)


def check(
    cases: Iterable[Case], read: Read, scratch: Path, counts: Counts, refusals: Refusals = REFUSALS
) -> None:
    """Reads every case in a fork, and adds the results to `counts`. `read` may write below `scratch` only.

    A case that ends the process is a violation. Another fork continues after it.
    """
    rest = list(cases)
    before = _cpu_of_children()
    shared = mmap.mmap(-1, _COUNTERS.size)
    while rest:
        shared[:] = _COUNTERS.pack(0, 0, 0, 0)
        status = _in_fork(rest, read, scratch, shared, counts.violations, refusals)
        current, *added = _COUNTERS.unpack(shared[:])
        for name, number in zip(_OUTCOMES, added, strict=True):
            setattr(counts, name, getattr(counts, name) + number)
        if status != 0:
            counts.violations[rest[current][0]] = _end(status)
        rest = rest[current + 1 :]
    counts.cpu_seconds += _cpu_of_children() - before


def _in_fork(
    cases: Sequence[Case],
    read: Read,
    scratch: Path,
    shared: mmap.mmap,
    violations: dict[str, str],
    refusals: Refusals,
) -> int:
    """Reads the cases in a fork until one of them ends it. Returns its exit status."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            with os.fdopen(writer, "w", buffering=1) as pipe:
                _read_all(cases, read, scratch, shared, refusals, lambda line: print(line, file=pipe))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        violations |= dict(json.loads(line) for line in pipe)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _read_all(
    cases: Sequence[Case],
    read: Read,
    scratch: Path,
    shared: mmap.mmap,
    refusals: Refusals,
    report: Callable[[str], None],
) -> None:
    faulthandler.disable()  # a death is reported by its signal
    sys.dont_write_bytecode = True  # of a module that a case imports first
    os.chdir(scratch)
    forbidden: list[str] = []
    sys.addaudithook(_guard(f"{scratch.resolve()}/", forbidden))
    limit = _address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    outcomes = dict.fromkeys(_OUTCOMES, 0)
    for number, (name, content) in enumerate(cases):
        shared[:] = _COUNTERS.pack(number, *outcomes.values())
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WALL)
        try:
            read(content)
            outcome = "read"
        except BaseException as error:
            outcome = _outcome(error, refusals)
        if forbidden:
            outcome = forbidden[0]
            forbidden.clear()
        if outcome in outcomes:
            outcomes[outcome] += 1
        else:
            report(json.dumps([name, outcome[:300]]))
    for timer in (signal.ITIMER_PROF, signal.ITIMER_REAL):
        signal.setitimer(timer, 0)
    shared[:] = _COUNTERS.pack(len(cases) - 1, *outcomes.values())


def _outcome(error: BaseException, refusals: Refusals) -> str:
    """One of _OUTCOMES, or why the exception is a violation."""
    if not isinstance(error, refusals):
        return f"{type(error).__name__}: {error}"
    if not str(error).strip():
        return f"{type(error).__name__} without a message"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return "limited"
        cause = cause.__cause__ or cause.__context__
    return "refused"


def _end(status: int) -> str:
    if status >= 0:
        return f"ended the process with status {status}"
    limits = {signal.SIGPROF: f"more than {SECONDS:g} s of CPU", signal.SIGALRM: f"no end within {WALL:g} s"}
    number = signal.Signals(-status)
    return limits.get(number, f"ended the process by {number.name}")


def _guard(scratch: str, forbidden: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that lists forbidden operations in `forbidden` and refuses them."""

    def is_outside(path: Any) -> bool:
        if isinstance(path, int) or path is None:
            return False
        text = os.path.abspath(os.fsdecode(path))
        return text != os.devnull and not f"{text}/".startswith(scratch)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            bad = isinstance(flags, int) and bool(flags & _WRITES) and is_outside(path)
        elif event in _CHANGES:
            bad = any(is_outside(arguments[position]) for position in _CHANGES[event])
        else:
            bad = _STARTS.fullmatch(event) is not None
        if bad:
            forbidden.append(f"{event} {arguments[:2]!r}")
            raise PermissionError(f"forbidden in this campaign: {event}")

    return hook


def _address_space() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
