"""The miniature project of operations.py as a git repository of its own, with its own temporary files."""

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.environment import environment_of
from tests.torture.operations import ROOT, write_project

# outputs with times of the run, and the state of DVC
_VOLATILE = ("data/logs", "data/fold_logs", "data/state")
# Tracked files that no stage reads: those of other runs, and what is not code.
_LEFT_OUT = (
    ".ci",
    ".github",
    "benchmarks",
    "data/history",
    "data/metrics",
    "data/plots",
    "deploy",
    "docs",
    "dvc.lock",
)
_LEFT_OUT += ("requirements", "tests")


@dataclass(frozen=True)
class Project:
    """The miniature project. `scratch` contains its temporary files."""

    path: Path
    scratch: Path

    def environment(self) -> dict[str, str]:
        temporary = str(self.scratch / "tmp")
        return environment_of(self.path, self.scratch) | {"TMPDIR": temporary, "OMP_NUM_THREADS": "1"}

    def start(self, command: str) -> subprocess.Popen[bytes]:
        with (self.scratch / "output").open("wb") as output:
            return subprocess.Popen(
                command.split(),
                cwd=self.path,
                env=self.environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self, command: str) -> str | None:
        """The end of the output if the command fails, else None."""
        if self.start(command).wait() == 0:
            return None
        return (self.scratch / "output").read_text(encoding="utf-8", errors="replace")[-300:]

    def processes(self) -> list[psutil.Process]:
        """The processes with this project as working directory."""
        inside = []
        for process in psutil.process_iter():
            try:
                if process.cwd().startswith(str(self.path)):
                    inside.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return inside

    def outputs(self) -> dict[str, str]:
        """sha256 of each output, by its name."""
        files = sorted(path for path in (self.path / "data").rglob("*") if path.is_file())
        names = {path.relative_to(self.path).as_posix(): path for path in files}
        return {
            name: hashlib.sha256(path.read_bytes()).hexdigest()
            for name, path in names.items()
            if not name.startswith(_VOLATILE)
        }

    def leftovers(self) -> list[str]:
        """Files that no run may leave, by name."""
        partial = [
            path.relative_to(self.path).as_posix()
            for pattern in ("*.partial", "*.replaced", "*.scratch")
            for path in (self.path / "data").rglob(pattern)
        ]
        temporary = [f"tmp/{path.name}" for path in (self.scratch / "tmp").iterdir()]
        return partial + temporary


@contextmanager
def project(several: bool = False, edit: Callable[[Path], object] = lambda path: None) -> Iterator[Project]:
    """A copy of the project with miniature settings, as a git repository. `several`: with a sweep and an
    ensemble. `edit` changes its files first."""
    with tempfile.TemporaryDirectory(prefix="unseen-miniature-") as folder:
        scratch, path = Path(folder).resolve(), Path(folder).resolve() / "my pröject"
        (scratch / "tmp").mkdir()
        path.mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        for name in listed.stdout.decode().split("\0"):
            is_present = (ROOT / name).is_file() or (ROOT / name).is_symlink()
            if is_present and not name.startswith(_LEFT_OUT):
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, path / name, follow_symlinks=False)
        write_project(path, several=several)
        edit(path)
        copy = Project(path, scratch)
        for command in ("git init --quiet", "git add -A"):
            if problem := copy.run(command):
                raise RuntimeError(f"{command}: {problem}")
        yield copy
