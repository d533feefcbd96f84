"""dvc.lock: its replacement after each stage of a parallel run, and its repair after a killed `dvc repro`.

DVC parses the whole file and rewrites it in place after each stage: CPU seconds at 2,000 stages. A DVC that
is killed meanwhile leaves a part of it or an empty file, and every later command of DVC fails: "'./dvc.lock'
validation failed".
"""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dvc_parallel.atomic import repair, replace

NAME = "dvc.lock"


class GraphLock:
    """The file of DVC at `path`, with the bytes that DVC writes. The caller holds DVC's lock.

    Entries of the file keep their order; new ones follow in the order of `names`, that of `dvc repro`. The
    file `count` has the number of the former until a run ends in which no stage failed, which removes it: a
    run that continues after a failure or a kill has the order of a single run.
    """

    def __init__(self, path: str, names: Sequence[str], count: Path) -> None:
        self._path, self._names, self._count = Path(path).resolve(), names, count
        self._written: tuple[int, int, int] | None = None
        self._before, self._after = "", ""
        self._entries: dict[str, str] = {}
        self._old: list[str] = []
        self._new: list[str] = []

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replaces or adds the entry of one stage. A kill leaves the file whole."""
        if self._written is None or self._version() != self._written:
            self._read()
        if name not in self._entries:
            if not self._new:
                self._count.write_text(str(len(self._old)))
            self._new = sorted([*self._new, name], key=self._names.index)
        self._entries[name] = _yaml({"stages": {name: content}}).removeprefix("stages:\n")
        text = "".join(self._entries[stage] for stage in (*self._old, *self._new))
        replace(self._path, f"{self._before}stages:\n{text}{self._after}".encode())
        self._written = self._version()

    def _read(self) -> None:
        """Reads the entries in the form in which DVC writes them, also if git or an editor wrote the file."""
        from dvc.utils.serialize import parse_yaml_for_update

        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        content = parse_yaml_for_update(text, str(self._path)) or {"schema": "2.0"}
        keys = [*content]
        place = keys.index("stages") if "stages" in keys else len(keys)
        self._before = _yaml({key: content[key] for key in keys[:place]})
        self._after = _yaml({key: content[key] for key in keys[place + 1 :]})
        stages = content.get("stages", {})
        self._entries = {
            name: _yaml({"stages": {name: entry}}).removeprefix("stages:\n") for name, entry in stages.items()
        }
        self._old, self._new = [*self._entries], []
        if self._count.exists() and (text := self._count.read_text()).isdigit():
            new = self._old[int(text) :]
            if set(new) <= set(self._names):
                self._old, self._new = self._old[: int(text)], new

    def _version(self) -> tuple[int, int, int] | None:
        if not self._path.exists():
            return None
        status = self._path.stat()
        return status.st_ino, status.st_mtime_ns, status.st_size


def _yaml(content: Mapping[str, Any]) -> str:
    from dvc.utils.serialize import dumps_yaml

    return str(dumps_yaml(content)) if content else ""


def repair_graph_lock() -> None:
    """Replaces a damaged dvc.lock of the working directory by that of the last commit, or removes it if git
    has none. DVC then restores the outputs of later stages from its run cache, or computes them again."""
    repair(Path(NAME), Path(".dvc/tmp/lock"), is_damaged, _committed, wait=True)


def _committed(path: Path) -> tuple[bytes | None, str]:
    committed = subprocess.run(["git", "show", f"HEAD:./{NAME}"], capture_output=True, check=False)
    if committed.returncode:
        return None, f"removed {path}, which a killed DVC left damaged"
    done = f"replaced {path}, which a killed DVC left damaged, by that of the last commit"
    return committed.stdout, done


def is_damaged(path: Path) -> bool:
    """Whether DVC cannot read the file for another reason than a conflict of git."""
    from dvc.dvcfile import Lockfile
    from dvc.exceptions import DvcException
    from dvc.utils.strictyaml import load

    try:
        load(str(path), Lockfile.SCHEMA)
    except FileNotFoundError:
        return False
    except DvcException:
        return b"<<<<<<<" not in path.read_bytes()
    return False
