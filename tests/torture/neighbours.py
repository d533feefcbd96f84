"""Hostile neighbours and unlucky machines: `python -m tests.torture.neighbours`.

Stage `ingest` of the miniature project runs beside files of user NEIGHBOUR: named pipes, sockets and links
where it looks for what killed processes left, files that it may not read or replace. It runs with umask 077,
in a temporary directory without programs, with a clock that goes back, on a full disk, and while it is
stopped and continued; and three runs of the whole graph begin at once. The stage runs as root without
capabilities, which the permissions of files bind as any other user. A case is a violation unless the stage
ends within SECONDS, succeeds with the bytes of an undisturbed run or ends with one message and the earlier
outputs, and no file of the neighbour is changed or missing. When a full disk has space again, the stage
succeeds. Needs Linux and root. The campaign continues where it was stopped.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.torture import named, results
from tests.torture.miniature import Project, project
from tests.torture.results import Result

STATE = results.RESULTS / "neighbours.json"
NEIGHBOUR = 65534  # nobody
_DROP = 24  # PR_CAPBSET_DROP of prctl(2)
SECONDS = 60.0
MODULES = ("unseen.stages.ingest", "unseen.data.ingest.sources.parts")
RUN = (*MODULES, "unseen.cli.run", "dvc_parallel.parallel")
_NEW_MOUNTS, _NO_PROGRAMS, _REMOUNT, _PRIVATE = 0x20000, 8, 32, (1 << 14) | (1 << 18)  # unshare(2), mount(2)
_OLD = (1e9, 1e9)  # a file that is a few seconds old may be one that its process has not locked yet
_SHARDS = "data/shards"
_PARTIAL = f".parts.{'0' * 32}.partial"
# files of the user of the stage, which a neighbour links, or which another process of the user holds
_OF_THE_USER = ("victim", "target/owner", "unseen-busy", "unseen-busy/owner")


@dataclass(frozen=True)
class Place:
    """Where a neighbour puts files. `shared`: for temporary files of all users, RAY_TMPDIR and TMPDIR."""

    project: Path
    shared: Path


def _aged(path: Path) -> None:
    os.utime(path, _OLD, follow_symlinks=False)


def _in_cluster(make: Callable[[Path], object]) -> Callable[[Place], None]:
    """`make` creates the file `owner` of a directory of a private cluster."""

    def prepare(place: Place) -> None:
        folder = place.shared / "unseen-neighbour"
        folder.mkdir()
        (folder / "kept").touch()
        make(folder / "owner")
        _aged(folder / "owner")

    return prepare


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(path.parent)  # the name of a socket has at most 107 bytes
        listener.bind(path.name)
        os.chdir(before)


def _victim(path: Path) -> Path:
    """An old file of the user of the stage."""
    victim = path.parent.parent / "victim"
    victim.touch()
    _aged(victim)
    return victim


def _linked_folder(place: Place) -> None:
    folder = place.shared / "target"
    folder.mkdir()
    (folder / "owner").touch()
    _aged(folder / "owner")
    (place.shared / "unseen-link").symlink_to(folder)


def _held(place: Place) -> None:
    """A directory of a private cluster of a process of the same user that still runs: this one."""
    owner = place.shared / "unseen-busy/owner"
    owner.parent.mkdir()
    owner.touch()
    _aged(owner)
    fcntl.flock(os.open(owner, os.O_RDONLY), fcntl.LOCK_EX)


def _partial_directory(place: Place) -> None:
    folder = place.project / _SHARDS / _PARTIAL
    folder.mkdir(parents=True)
    (folder / "shard-00000.arrow").touch()
    _aged(folder)


def _partial_pipe(place: Place) -> None:
    os.mkfifo(place.project / _SHARDS / _PARTIAL)
    _aged(place.project / _SHARDS / _PARTIAL)


def _foreign(name: str, mode: int) -> Callable[[Place], None]:
    """A file or directory of the project that belongs to the neighbour."""

    def prepare(place: Place) -> None:
        os.chown(place.project / name, NEIGHBOUR, NEIGHBOUR)
        (place.project / name).chmod(mode)

    return prepare


def _pipe_for(name: str) -> Callable[[Place], None]:
    def prepare(place: Place) -> None:
        path = place.project / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        os.mkfifo(path)
        path.chmod(0o666)

    return prepare


def _of_tomorrow(place: Place) -> None:
    """The clock was a day ahead when the files of the project were written."""
    for path in place.project.rglob("*"):
        os.utime(path, (time.time() + 86400,) * 2, follow_symlinks=False)


_CLOCK = """
import runpy, sys, time
clock, start = time.time, time.monotonic()
time.time = lambda: clock() - 86400 * (time.monotonic() > start + 1)
sys.argv = ["ingest", "parts"]
runpy.run_module("unseen.stages.ingest", run_name="__main__", alter_sys=True)
"""  # a second after the start the clock goes back by a day


def _stopped_and_continued(process: subprocess.Popen[bytes]) -> None:
    for _ in range(4):
        time.sleep(0.4)
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(0.6)
        os.killpg(process.pid, signal.SIGCONT)


def _mounted(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    call = ctypes.CDLL(None, use_errno=True).mount
    texts = [text and text.encode() for text in (source, target, kind, options)]
    if call(*texts[:3], ctypes.c_ulong(flags), texts[3]):
        raise OSError(ctypes.get_errno(), f"mount {target}")


def may_mount(folder: Path) -> bool:
    """Whether this process may mount disks; root in a container often may not."""
    try:
        _mounted("tmpfs", str(folder), "tmpfs", 0)
    except PermissionError:
        return False
    subprocess.run(["umount", folder], check=True)
    return True


def _without_programs(place: Place) -> None:
    """In the process of the stage: the temporary directory becomes one from which no program starts."""
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    _mounted("none", "/", None, _PRIVATE)
    _mounted("tmpfs", str(place.shared), "tmpfs", _NO_PROGRAMS)


@dataclass(frozen=True)
class Case:
    """prepare: before the stage starts. program: the arguments of Python. inside: in the process of the
    stage. during: while it runs. disk: the size of the disk of the outputs, and its size for a second run."""

    prepare: Callable[[Place], None] = lambda place: None
    program: tuple[str, ...] = ("-m", "unseen.stages.ingest", "parts")
    inside: Callable[[Place], None] = lambda place: None
    during: Callable[[subprocess.Popen[bytes]], None] = lambda process: None
    umask: int = 0o022
    disk: tuple[str, str] | None = None
    replaces: bool = False  # an output is no longer that of the earlier run


CASES: dict[str, Case] = {
    "nothing": Case(),
    "named pipe as `owner`": Case(_in_cluster(os.mkfifo)),
    "socket as `owner`": Case(_in_cluster(_socket)),
    "link as `owner`": Case(_in_cluster(lambda path: path.symlink_to(_victim(path)))),
    "directory as `owner`": Case(_in_cluster(os.mkdir)),
    "unreadable `owner`": Case(_in_cluster(lambda path: path.touch(0o000))),
    "`owner` of another user": Case(_in_cluster(lambda path: path.touch())),
    "link to a directory with `owner`": Case(_linked_folder),
    "`owner` that a process of the same user holds": Case(_held),
    "partial directory of another user": Case(_partial_directory),
    "named pipe as partial directory": Case(_partial_pipe),
    "named pipe as output": Case(_pipe_for(f"{_SHARDS}/parts"), replaces=True),
    "named pipe as resolved settings": Case(_pipe_for("data/resolved/ingest/parts.json")),
    "unreadable settings": Case(_foreign("data/resolved", 0o700)),
    "outputs of another user": Case(_foreign(_SHARDS, 0o755)),
    "read-only data": Case(_foreign("data", 0o555)),
    "temporary directory of another user": Case(lambda place: place.shared.chmod(0o755)),
    "unreadable temporary directory": Case(lambda place: place.shared.chmod(0o700)),
    "temporary directory without programs": Case(inside=_without_programs),
    "umask 077": Case(umask=0o077),
    "files of tomorrow": Case(_of_tomorrow),
    "clock that goes back by a day": Case(program=("-c", _CLOCK)),
    "SIGSTOP and SIGCONT": Case(during=_stopped_and_continued),
    "full disk, then a larger one": Case(disk=("128k", "16m")),
}
THREE_RUNS = "two `unseen run` and a `dvc repro` at once"
COMMANDS = ("unseen run -j 2", "unseen run -j 2", "dvc repro")


def _drop_capabilities() -> None:
    """Of this process: none remains after the next program starts."""
    call = ctypes.CDLL(None, use_errno=True).prctl
    for capability in range(64):
        if call(_DROP, capability, 0, 0, 0) and ctypes.get_errno() != errno.EINVAL:  # an unknown number
            raise OSError(ctypes.get_errno(), "prctl")


def ingest(place: Place, case: Case, environment: dict[str, str]) -> tuple[int | None, str]:
    """The status of the stage, None without an end, and its output."""
    shared = str(place.shared)

    def begin() -> None:
        case.inside(place)
        _drop_capabilities()

    with subprocess.Popen(
        [sys.executable, *case.program],
        cwd=place.project,
        env=environment | {"RAY_TMPDIR": shared, "TMPDIR": shared, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=begin,
        umask=case.umask,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        case.during(process)
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, ""
    return process.returncode, output.decode(errors="replace")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Each entry below a folder; the bytes of files."""
    entries = sorted(folder.rglob("*"))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in entries
    }


def _messages(output: str) -> list[str]:
    """The lines that say why a command failed: those of a stage, of DVC, and of `unseen run` for a stage that
    cannot start."""
    return [
        line
        for line in output.splitlines()
        if line.startswith(("error:", "ERROR:")) or ": failed, not started: " in line
    ]


def _problem(status: int | None, output: str) -> str | None:
    """What is wrong with the end of a command: it has none, or fails without one message."""
    if status is None:
        return f"no end within {SECONDS:g} s"
    if "Traceback" in output or (status and len(_messages(output)) != 1):
        return f"status {status}: {(output.strip().splitlines() or [''])[-1]}"
    return None


def case(name: str, copy: Project) -> tuple[str, list[str]]:
    """The outcome of a case in a copy of the finished project, and its violations."""
    root, case = copy.scratch / "case", CASES[name]
    place = Place(root / "project", root / "shared")
    shutil.copytree(copy.path, place.project, symlinks=True)
    place.shared.mkdir()
    place.shared.chmod(0o1777)
    shards = place.project / _SHARDS
    before, own = contents(shards / "parts"), set(root.rglob("*")) - {place.shared}
    case.prepare(place)
    for path in set(root.rglob("*")) - own:
        if not path.as_posix().endswith(_OF_THE_USER):
            os.chown(path, NEIGHBOUR, NEIGHBOUR, follow_symlinks=False)
    foreign = contents(place.shared)
    problems = []
    with _disk(shards, case.disk) as enlarge:
        status, output = ingest(place, case, copy.environment())
        ends = [(status, output)]
        if case.disk is not None:
            if not status:
                problems.append("the disk was large enough")
            if contents(shards / "parts") != before:
                problems.append("the full disk changed outputs")
            enlarge()
            ends.append(ingest(place, case, copy.environment()))
            if ends[-1][0] != 0:
                problems.append("the run after it fails")
        problems += [problem for end in ends if (problem := _problem(*end))]
        if not case.replaces and contents(shards / "parts") != before:
            problems.append("outputs differ")
    after = contents(place.shared)
    problems += [f"{path} is changed or missing" for path in foreign if after.get(path, b"") != foreign[path]]
    shutil.rmtree(root)
    outcome = "; ".join(_messages(output)).replace(str(root), "...") if status else "works"
    return outcome + "; then works" * (case.disk is not None), problems


@contextlib.contextmanager
def _disk(folder: Path, sizes: tuple[str, str] | None) -> Iterator[Callable[[], None]]:
    """Within the block `folder` is a disk of the first size with the same files; the value enlarges it."""
    if sizes is None:
        yield lambda: None
        return
    target = str(folder)
    backup = folder.with_name("backup")
    shutil.copytree(folder, backup)
    _mounted("tmpfs", target, "tmpfs", 0, f"size={sizes[0]}")
    try:
        shutil.copytree(backup, folder, dirs_exist_ok=True)
        shutil.rmtree(backup)
        yield lambda: _mounted("tmpfs", target, "tmpfs", _REMOUNT, f"size={sizes[1]}")
    finally:
        subprocess.run(["umount", target], check=True)


def three_runs(copy: Project) -> tuple[str, list[str]]:
    """Three commands that build the graph begin at once in the finished project, forced. Each succeeds or
    ends with one message; one more run then succeeds, DVC finds nothing to do, and outputs are as before."""
    before = copy.outputs()
    outputs = [copy.scratch / f"output {number}" for number in range(len(COMMANDS))]
    processes = []
    for command, output in zip(COMMANDS, outputs, strict=True):
        with output.open("wb") as file:
            processes.append(
                subprocess.Popen(
                    [*command.split(), "--force"],
                    cwd=copy.path,
                    env=copy.environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                )
            )
    problems, ended = [], []
    for command, process, output in zip(COMMANDS, processes, outputs, strict=True):
        process.wait()
        text = output.read_text(errors="replace")
        if problem := _problem(process.returncode, text):
            problems.append(f"{command}: {problem}")
        ended.append(f"`{command}`: {'works' if process.returncode == 0 else 'ends with one message'}")
    if all(process.returncode for process in processes):
        problems.append("no command works")
    for command in ("unseen run -j 2", "dvc status --quiet"):
        if problem := copy.run(command):
            problems.append(f"{command}: {problem}")
    if copy.outputs() != before:
        problems.append("outputs differ")
    return "; ".join(ended), problems + copy.leftovers()


def campaign(names: Sequence[str], state: Path, edit: Callable[[Path], object] = lambda path: None) -> None:
    """Runs the cases that the results lack, in a project that `edit` changed."""
    with project(edit=edit) as copy:
        for stage in ("resolve", "ingest parts"):
            if problem := copy.run(f"python -m unseen.stages.{stage}"):
                raise RuntimeError(problem)

        def result(name: str) -> Result:
            outcome, problems = three_runs(copy) if name == THREE_RUNS else case(name, copy)
            return {"outcome": outcome, "violations": problems}

        if THREE_RUNS in names and (problem := copy.run("unseen run -j 2")):
            raise RuntimeError(problem)
        named.campaign(names, state, lambda name: RUN if name == THREE_RUNS else MODULES, result, _line)


def _line(result: Result) -> str:
    return f"{result['outcome']}: {'; '.join(result['violations']) or 'ok'}"


def main() -> None:
    names, state = named.options(
        "Hostile neighbours stop and damage nothing.", "cases", (*CASES, THREE_RUNS), STATE
    )
    if os.geteuid() != 0:
        raise SystemExit("The campaign needs root: its files belong to two users.")
    campaign(names, state)


if __name__ == "__main__":
    main()
