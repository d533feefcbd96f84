"""A small DVC project whose stages sleep."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DVC_YAML = """
stages:
  first:
    matrix:
      name: ${run.datasets}
    cmd: echo ${item.name} > first-${item.name}
    deps:
    - source
    outs:
    - first-${item.name}
  second:
    matrix:
      name: ${run.datasets}
    cmd: exec sh second.sh ${item.name}
    deps:
    - first-${item.name}
    outs:
    - second-${item.name}
  last:
    cmd: cat second-* > last
    deps:
    - second-x
    - second-y
    outs:
    - last
"""
SCRIPT = """
from pathlib import Path
from dvc_parallel.parallel import run
raise SystemExit(run(TARGETS, OPTIONS, 4, lambda stage: {}, lambda: None, Path("logs")))
"""


def _handle_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Toy:
    """The project: cells x and y of stages `first` and `second`, then `last`."""

    path: Path

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, encoding="utf-8")

    def start(
        self, targets: tuple[str, ...] = (), options: tuple[str, ...] = (), script: str = SCRIPT
    ) -> subprocess.Popen[str]:
        """A parallel run in the background."""
        text = script.replace("TARGETS", repr(targets)).replace("OPTIONS", repr(options))
        return subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=self.path,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A shell lets the commands that it starts in the background ignore SIGINT, and so their children.
            preexec_fn=_handle_interrupts,
        )

    def run(self, *targets: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        """The exit status and the output of a parallel run."""
        process = self.start(targets, options)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def dvc(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        environment = self.environment()
        return subprocess.run(
            command, cwd=self.path, env=environment, check=True, capture_output=True, text=True
        ).stdout

    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "RAY_"))}
        # Without the process that `dvc init` leaves in the folder for its statistics.
        return clean | {"PYTHONPATH": str(ROOT), "SHELL": "/bin/sh", "NO_COLOR": "1", "DVC_NO_ANALYTICS": "1"}


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    project = Toy(tmp_path)
    project.write("dvc.yaml", DVC_YAML)
    project.write("params.yaml", "run:\n  datasets: [x, y]\n")
    project.write("source", "source\n")
    project.write("second.sh", "cat first-$1 > second-$1\n")
    project.dvc("init", "-q", "--no-scm")
    return project
