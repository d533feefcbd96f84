"""The process of a stage: its command in a session of its own, whose output goes to a log file."""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from dvc_parallel.errors import RunError
from dvc_parallel.graph import Stages

_PR_SET_PDEATHSIG = 1
_GRACE = 10.0  # seconds between SIGTERM and SIGKILL; a stage closes its files and cluster in half of it


class StageProcess:
    """The commands of a stage, one after the other. Raises RunError if DVC cannot start the stage."""

    def __init__(self, stages: Stages, stage: str, log: Path, environment: Mapping[str, str]) -> None:
        self.stage, self.log, self._stages = stage, log, stages
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        self._status: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._command = stages.begin(stage, environment)
        if self._command is None:
            self._status = 0
            return
        self._lines = iter(self._command.lines)
        self._start(next(self._lines))

    def _start(self, line: str | Sequence[str]) -> None:
        assert self._command is not None
        with self.log.open("ab") as output:
            output.write(f"> {line if isinstance(line, str) else line[-1]}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                line,
                **self._command.arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=functools.partial(end_with, os.getpid()),
            )

    def returncode(self) -> int | None:
        """The exit status, None while it runs. After the last command DVC writes the outputs to its cache."""
        if self._status is not None or self._process is None or self._process.poll() is None:
            return self._status
        assert self._command is not None
        if self._process.returncode == 0 and (line := next(self._lines, None)) is not None:
            self._start(line)
            return None
        self._status = self._process.returncode
        if self._status:
            self._command.paths.close()
            return self._status
        try:
            self._stages.finish(self.stage, self._command)
        except RunError as error:
            with self.log.open("a", encoding="utf-8") as output:
                output.write(f"{error}\n")
            self._status = 1
        return self._status

    def was_restored(self) -> bool:
        """Whether DVC restored the outputs from the run cache instead of running the command."""
        return self._command is None

    def last_lines(self, count: int) -> list[str]:
        return self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]

    @property
    def session(self) -> int | None:
        return None if self._process is None else self._process.pid

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait(self) -> None:
        """Waits for the end of a terminated command, which leaves no outputs in the cache."""
        if self._process is not None and self._command is not None:
            self._process.wait()
            self._command.paths.close()


def end_with(parent: int) -> None:
    """Makes Linux send SIGTERM when the parent of this process ends. Ends it if `parent` has ended."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def end(processes: Iterable[StageProcess]) -> None:
    """Ends `processes` and all processes of their sessions: SIGTERM, and SIGKILL after a grace period."""
    ended = list(processes)
    for process in ended:
        process.terminate()
    sessions = {process.session for process in ended if process.session is not None}
    deadline = time.monotonic() + _GRACE
    while (remaining := _of_sessions(sessions)) and time.monotonic() < deadline:
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
