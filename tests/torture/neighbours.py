"""Hostile neighbours: `python -m tests.torture.neighbours`.

Stage `ingest` of the miniature project runs beside files of user NEIGHBOUR: named pipes, sockets and links
where it looks for what killed processes left, files that it may not read or replace, umask 077. The stage
runs as root without capabilities, which the permissions of files bind as any other user. A case is a
violation unless the stage ends within SECONDS, succeeds with the bytes of an undisturbed run or ends with one
message and the earlier outputs, and no file of the neighbour is changed or missing. Needs Linux and root. The
campaign continues where it was stopped.
"""

import ctypes
import errno
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
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
_OLD = (1e9, 1e9)  # a file that is a few seconds old may be one that its process has not locked yet
_SHARDS = "data/shards"
_PARTIAL = f".parts.{'0' * 32}.partial"
_OF_THE_USER = ("victim", "target/owner")  # files of the user of the stage, which a neighbour links


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


CASES: dict[str, Callable[[Place], None]] = {
    "nothing": lambda place: None,
    "named pipe as `owner`": _in_cluster(os.mkfifo),
    "socket as `owner`": _in_cluster(_socket),
    "link as `owner`": _in_cluster(lambda path: path.symlink_to(_victim(path))),
    "directory as `owner`": _in_cluster(os.mkdir),
    "unreadable `owner`": _in_cluster(lambda path: path.touch(0o000)),
    "`owner` of another user": _in_cluster(lambda path: path.touch()),
    "link to a directory with `owner`": _linked_folder,
    "partial directory of another user": _partial_directory,
    "named pipe as partial directory": _partial_pipe,
    "named pipe as output": _pipe_for(f"{_SHARDS}/parts"),
    "named pipe as resolved settings": _pipe_for("data/resolved/ingest/parts.json"),
    "unreadable settings": _foreign("data/resolved", 0o700),
    "outputs of another user": _foreign(_SHARDS, 0o755),
    "read-only data": _foreign("data", 0o555),
    "temporary directory of another user": lambda place: place.shared.chmod(0o755),
    "unreadable temporary directory": lambda place: place.shared.chmod(0o700),
    "umask 077": lambda place: None,
}


def _drop_capabilities() -> None:
    """Of this process: none remains after the next program starts."""
    call = ctypes.CDLL(None, use_errno=True).prctl
    for capability in range(64):
        if call(_DROP, capability, 0, 0, 0) and ctypes.get_errno() != errno.EINVAL:  # an unknown number
            raise OSError(ctypes.get_errno(), "prctl")


def ingest(place: Place, environment: dict[str, str], umask: int) -> tuple[int | None, str]:
    """The status of the stage, None without an end, and its output."""
    shared = str(place.shared)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "unseen.stages.ingest", "parts"],
            cwd=place.project,
            env=environment | {"RAY_TMPDIR": shared, "TMPDIR": shared, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=_drop_capabilities,
            umask=umask,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, ""
    return ended.returncode, ended.stdout.decode(errors="replace")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Each entry below a folder; the bytes of files."""
    entries = sorted(folder.rglob("*"))
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None for path in entries
    }


def case(name: str, copy: Project) -> tuple[str, list[str]]:
    """The outcome of a case in a copy of the finished project, and its violations."""
    root = copy.scratch / "case"
    place = Place(root / "project", root / "shared")
    shutil.copytree(copy.path, place.project, symlinks=True)
    place.shared.mkdir()
    place.shared.chmod(0o1777)
    before, own = contents(place.project / _SHARDS / "parts"), set(root.rglob("*")) - {place.shared}
    CASES[name](place)
    for path in set(root.rglob("*")) - own:
        if not path.as_posix().endswith(_OF_THE_USER):
            os.chown(path, NEIGHBOUR, NEIGHBOUR, follow_symlinks=False)
    foreign = contents(place.shared)
    status, output = ingest(place, copy.environment(), 0o077 if name.startswith("umask") else 0o022)
    problems = []
    messages = [line for line in output.splitlines() if line.startswith("error:")]
    if status is None:
        problems.append(f"no end within {SECONDS:g} s")
    elif "Traceback" in output or (status and len(messages) != 1):
        problems.append(f"status {status}: {(output.strip().splitlines() or [''])[-1]}")
    if "as output" not in name and contents(place.project / _SHARDS / "parts") != before:
        problems.append("outputs differ")
    after = contents(place.shared)
    problems += [f"{path} is changed or missing" for path in foreign if after.get(path, b"") != foreign[path]]
    shutil.rmtree(root)
    return "works" if status == 0 else "; ".join(messages).replace(str(root), "..."), problems


def campaign(names: list[str], state: Path) -> None:
    """Runs the cases that the results lack."""
    with project() as copy:
        for stage in ("resolve", "ingest parts"):
            if problem := copy.run(f"python -m unseen.stages.{stage}"):
                raise RuntimeError(problem)

        def result(name: str) -> Result:
            outcome, problems = case(name, copy)
            return {"outcome": outcome, "violations": problems}

        named.campaign(names, state, lambda name: MODULES, result, _line)


def _line(result: Result) -> str:
    return f"{result['outcome']}: {'; '.join(result['violations']) or 'ok'}"


def main() -> None:
    names, state = named.options("Hostile neighbours stop and damage nothing.", "cases", CASES, STATE)
    if os.geteuid() != 0:
        raise SystemExit("The campaign needs root: its files belong to two users.")
    campaign(names, state)


if __name__ == "__main__":
    main()
