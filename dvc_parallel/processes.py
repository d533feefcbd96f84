"""The process of a stage: DVC in a session of its own, whose output goes to a log file."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

_GRACE = 10.0  # seconds between SIGTERM and SIGKILL; a stage closes its files and cluster in half of it


class StageProcess:
    """`dvc --wait-for-lock repro --single-item STAGE`; `options` are further options of `dvc repro`."""

    def __init__(self, stage: str, log: Path, options: Sequence[str], environment: Mapping[str, str]) -> None:
        self.stage, self.log = stage, log
        log.parent.mkdir(parents=True, exist_ok=True)
        arguments = ["--wait-for-lock", "repro", *options, "--single-item", stage]
        with log.open("wb") as output:
            self._process = dvc(arguments, environment, output.fileno())

    def returncode(self) -> int | None:
        """The exit status, None while it runs."""
        return self._process.poll()

    def was_restored(self) -> bool:
        """Whether DVC restored the outputs from the run cache instead of running the command."""
        line = f"Stage '{self.stage}' is cached - skipping run, checking out outputs"
        return any(text == line for text in self._lines())

    def last_lines(self, count: int) -> list[str]:
        return self._lines()[-count:]

    def _lines(self) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()

    @property
    def session(self) -> int:
        return self._process.pid

    def terminate(self) -> None:
        self._process.terminate()

    def wait(self) -> None:
        self._process.wait()


def dvc(
    arguments: Sequence[str], environment: Mapping[str, str], output: int | None = None
) -> subprocess.Popen[bytes]:
    """Starts DVC. It ends with this process.

    With `output`, a file descriptor, it has a session of its own, without the signals of the terminal.
    """
    command = [sys.executable, "-m", "dvc_parallel.dvc_process", str(os.getpid()), *arguments]
    return subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdin=None if output is None else subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=output is not None,
    )


def end(processes: Iterable[StageProcess]) -> None:
    """Ends `processes` and all processes of their sessions: SIGTERM, and SIGKILL after a grace period."""
    ended = list(processes)
    for process in ended:
        process.terminate()
    sessions = {process.session for process in ended}
    deadline = time.monotonic() + _GRACE
    while (remaining := _of_sessions(sessions)) and time.monotonic() < deadline:
        for process in ended:
            process.returncode()  # reaps it
        time.sleep(0.05)
    for member in remaining:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    for process in ended:
        process.wait()


def _of_sessions(sessions: set[int]) -> list[psutil.Process]:
    members = []
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getsid(pid) in sessions:
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    members.append(process)
    return members
