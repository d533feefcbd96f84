"""DVC's file of the paths that its processes read and write, .dvc/tmp/rwlock.

DVC rewrites it in place, before and after each stage. A process that is killed meanwhile leaves it empty, and
every later `dvc repro` fails: "Unable to read RWLock-file".

Its entries are numbers and commands of processes. DVC removes the entry of a number without a process. The
entry of a killed DVC remains, and its paths are "busy", until the exit status of the process is read, which
the first process of a container may never do, and if another process has its number, as after the restart of
a container.
"""

import json
from pathlib import Path
from typing import Any

import psutil

from dvc_parallel.atomic import repair

FOLDER = Path(".dvc/tmp")


def repair_lock_file(folder: Path = FOLDER) -> None:
    """Removes the file if it is not JSON (DVC then writes a new one), else the entries of ended processes."""
    repair(folder / "rwlock", folder / "rwlock.lock", _needs_repair, _repaired)


def _repaired(path: Path) -> tuple[bytes | None, str]:
    try:
        content = json.dumps(_without_ended(_read(path))).encode()
    except ValueError:
        return None, f"removed {path}, which a killed DVC left damaged"
    return content, f"removed the entries of killed processes from {path}"


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
