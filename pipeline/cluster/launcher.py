"""Launches the Ray cluster that the stages of a parallel run share, when the first stage needs it."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from unseen.cluster.connection import cluster_address
from unseen.runtime.errors import UserError
from unseen.runtime.stage import PARENT

_GRACE = 10.0  # seconds in which the cluster ends by itself
_STARTS = 2  # of the cluster of one run


class RunCluster:
    """A private cluster for `processes` processes, for the stages of which `needs_ray(stage)` is true.

    With RAY_ADDRESS nothing starts: the stages connect to that cluster. `log` receives what Ray prints.
    """

    def __init__(self, processes: int, needs_ray: Callable[[str], bool], log: Path) -> None:
        self._processes, self._needs_ray, self._log = processes, needs_ray, log
        self._starts = 0
        self._started: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] | None = None

    def environment(self, stage: str) -> Mapping[str, str] | None:
        """The environment variables by which `stage` finds the cluster; None while it starts.

        A cluster that did not start or has ended is started once more. Raises UserError if it ended twice.
        """
        if cluster_address() is not None or not self._needs_ray(stage):
            return {}
        if self._started is None and self._starts < _STARTS:
            self._started = _start(self._processes, self._log, append=self._starts > 0)
            self._starts += 1
        if self._started is not None and self._variables is None:
            output = self._started.stdout
            assert output is not None
            if not select.select([output], [], [], 0)[0]:
                return None
            if line := output.readline():
                self._variables = json.loads(line)["environment"]
        if self._started is not None and self._variables is not None and self._started.poll() is None:
            return self._variables
        self.end()
        if self._starts < _STARTS:
            return None
        raise _ended(f"The Ray cluster of this run ended {_STARTS} times", self._log)

    def end(self) -> None:
        """Ends the cluster, if it was started, and waits for its end."""
        if self._started is None:
            return
        process, self._started, self._variables = self._started, None, None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def resources(log: Path) -> tuple[int, int]:
    """The CPUs and GPUs of the cluster of RAY_ADDRESS. Raises UserError if it cannot be reached, or if one of
    its nodes lacks the project."""
    process = _start(1, log)
    line, _ = process.communicate()
    if not line:
        raise _ended("The Ray cluster of this run cannot be used", log)
    answer = json.loads(line)
    return answer["cpus"], answer["gpus"]


def _start(processes: int, log: Path, append: bool = False) -> subprocess.Popen[bytes]:
    """The process that holds the cluster. It ends with this process, and Ctrl-C does not reach it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab" if append else "wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "unseen.cluster.run_cluster", str(processes)],
            env={**os.environ, PARENT: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def _ended(what: str, log: Path) -> UserError:
    """The error for a process that ended, with the end of its log."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    reason = "\n  ".join(lines[-2:]) if lines else "it printed nothing"
    return UserError(f"{what}: {reason}", f"{log} has all its output.")
