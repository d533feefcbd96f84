"""DVC's file of the paths that its processes read and write, .dvc/tmp/rwlock.

DVC rewrites it in place, before and after each stage. A process that is killed meanwhile leaves it empty, and
every later `dvc repro` fails: "Unable to read RWLock-file".

Its entries are numbers and commands of processes. DVC removes the entry of a number without a process. The
entry of a killed DVC remains, and its paths are "busy", until the exit status of the process is read, which
the first process of a container may never do, and if another process has its number, as after the restart of
a container.

The number of a process of another container on the same files is unknown here. Therefore a stage may share
the lock (flock) of the directory of its project while it runs, and its entries remain.
"""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from dvc_parallel.atomic import partial_of, repair
from dvc_parallel.errors import RunError
from dvc_parallel.graph_lock import NAME as GRAPH_LOCK

FOLDER = Path(".dvc/tmp")
UNFINISHED = "unfinished-run"  # the file in it from the start of a run to its end without a failure
_TEMPORARY = f".{'?' * 22}.tmp"  # ends DVC's name of a file that it then renames
GRACE = 8.0  # seconds in which the stage of a killed DVC ends


def repair_lock_file(folder: Path = FOLDER) -> None:
    """Removes the file if it is not JSON (DVC then writes a new one), else the entries of ended processes,
    whose run is then marked as unfinished.

    Raises RunError if a process shares the lock of the project after GRACE.
    """
    if _needs_repair(folder / "rwlock"):
        _require_no_stage(folder.absolute().parent.parent)
        (folder / UNFINISHED).touch()
        repair(folder / "rwlock", folder / "rwlock.lock", _needs_repair, _repaired)


def remove_partial(folder: Path, outputs: Iterable[str | Path]) -> None:
    """Removes what ended processes of DVC left, unless a process has an entry in DVC's file: temporary files
    in the cache of the project and beside `outputs`, the partial dvc.lock, and empty folders of the run
    cache.

    folder: .dvc/tmp. DVC also leaves its temporary files if Ctrl-C or SIGTERM ends it in order.
    """
    try:
        is_used = any(_read(folder / "rwlock").values())
    except (FileNotFoundError, ValueError):
        is_used = False
    if is_used:
        return
    cache, project = folder.parent / "cache", folder.parent.parent
    of_outputs = {Path(output).parent for output in outputs}
    beside = [parent.glob(_TEMPORARY) for parent in of_outputs]
    partial = partial_of(project / GRAPH_LOCK)
    for file in itertools.chain(cache.rglob(f"*{_TEMPORARY}"), *beside, [partial]):
        file.unlink(missing_ok=True)
    for entries in cache.glob("runs/*/*"):
        with contextlib.suppress(OSError):
            entries.rmdir()  # DVC would fail at an empty one


def _require_no_stage(project: Path) -> None:
    """Raises RunError if a process shares the lock of `project` after GRACE."""
    end = time.monotonic() + GRACE
    descriptor = os.open(project, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:  # a file system without locks
                    return
            else:
                return
            if time.monotonic() > end:
                raise RunError(
                    f"Another `dvc repro` or `unseen run` runs a stage of {project}.",
                    "Wait until it has ended. It may run in another container.",
                )
            time.sleep(0.1)
    finally:
        os.close(descriptor)


def _repaired(path: Path) -> tuple[bytes | None, str]:
    try:
        content = _read(path)
    except ValueError:
        return None, f"removed {path}, which a killed DVC left damaged"
    remaining = _without_ended(content)
    return json.dumps(remaining).encode(), f"removed the entries of killed processes from {path}"


def _needs_repair(path: Path) -> bool:
    try:
        content = _read(path)
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return _without_ended(content) != content


def _read(path: Path) -> Any:
    """Raises ValueError for a file that is not JSON."""
    return json.loads(path.read_text(encoding="utf-8"))


def _without_ended(content: Any) -> Any:
    """The content without the entries of ended processes: {write: {path: entry}, read: {path: [entry, ...]}}.
    DVC itself refuses content of another form."""
    if isinstance(content, list):
        return [value for value in map(_without_ended, content) if value is not None]
    if not isinstance(content, dict):
        return content
    if isinstance(content.get("pid"), int) and isinstance(content.get("cmd"), str):
        return content if _runs(content["pid"], content["cmd"]) else None
    values = {key: _without_ended(value) for key, value in content.items()}
    return {key: value for key, value in values.items() if value or not content[key]}


def _runs(number: int, command: str) -> bool:
    """Whether the process runs with the arguments of `command`, the joined `sys.argv` of an entry.

    The program may differ: `python -m dvc` is dvc/__main__.py there.
    """
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        line = process.cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    return any(command.endswith(" ".join(line[start:])) for start in range(1, len(line)))
