"""The Ray cluster that the stages of a parallel run share. It starts when the first stage needs it."""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.cluster.connection import cluster_address
from pipeline.runtime.errors import UserError
from pipeline.runtime.stage import PARENT

_GRACE = 10.0  # seconds in which the cluster ends by itself


class RunCluster:
    """A private cluster for `processes` processes, for the stages of which `needs_ray(stage)` is true.

    With RAY_ADDRESS nothing starts: the stages connect to that cluster. `log` receives what Ray prints.
    """

    def __init__(self, processes: int, needs_ray: Callable[[str], bool], log: Path) -> None:
        self._processes, self._needs_ray, self._log = processes, needs_ray, log
        self._started: subprocess.Popen[bytes] | None = None
        self._variables: dict[str, str] | None = None

    def environment(self, stage: str) -> Mapping[str, str] | None:
        """The environment variables by which `stage` finds the cluster; None while it starts.

        Raises UserError if the cluster does not start.
        """
        if cluster_address() is not None or not self._needs_ray(stage):
            return {}
        if self._started is None:
            self._started = _start(self._processes, self._log)
        if self._variables is None:
            output = self._started.stdout
            assert output is not None
            if not select.select([output], [], [], 0)[0]:
                return None
            self._variables = _answer(output.readline(), self._log)["environment"]
        return self._variables

    def end(self) -> None:
        """Ends the cluster, if it was started, and waits for its end."""
        if self._started is None:
            return
        for pipe in (self._started.stdin, self._started.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._started.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._started.terminate()
            self._started.wait()


def resources(log: Path) -> tuple[int, int]:
    """The CPUs and GPUs of the cluster of RAY_ADDRESS. Raises UserError if it cannot be reached."""
    process = _start(1, log)
    output, _ = process.communicate()
    answer = _answer(output, log)
    return answer["cpus"], answer["gpus"]


def _start(processes: int, log: Path) -> subprocess.Popen[bytes]:
    """The process that holds the cluster. It ends with this process, and Ctrl-C does not reach it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline.cluster.run_cluster", str(processes)],
            env={**os.environ, PARENT: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )


def _answer(line: bytes, log: Path) -> Any:
    """The line that the process printed. Raises UserError with the end of its log if it ended before."""
    if not line:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = "\n  ".join(lines[-2:]) if lines else "it printed nothing"
        raise UserError(f"The Ray cluster of this run did not start: {reason}", f"{log} has all its output.")
    return json.loads(line)
