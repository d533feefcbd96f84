"""A call in a fork of this process, one file operation of which may fail."""

import contextlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tests.torture import shim


@dataclass(frozen=True)
class Ended:
    """A run that ended. `status`: -9 if it was killed. `operations`: the number of its file operations.
    `imported`: the modules that it imported."""

    status: int
    output: str
    operations: int = 0
    imported: tuple[str, ...] = ()


class Fork:
    """Calls `run` in a fork with `project` as working directory; the fault is that of its file operation
    `number` = 1, 2, ... Has `pid`, `poll` and `wait` of subprocess.Popen."""

    def __init__(self, run: Callable[[], None], project: Path, number: int, fault: int) -> None:
        from unseen.runtime.stage import report_errors

        self._log = project.with_name("output")
        self._reader, writer = os.pipe()
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        before = set(sys.modules)
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the fork handles it within `try` only
        self.pid = os.fork()
        if self.pid:
            signal.signal(signal.SIGINT, handler)
            os.close(writer)
            return
        status = 70
        try:
            with self._log.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            try:
                os.chdir(project)
                shim.arm(project, number, fault)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                with report_errors():
                    run()
                status = 0
            except SystemExit as end:
                status = int(end.code or 0)
            except BaseException:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            with os.fdopen(writer, "w") as pipe:
                json.dump((shim.count(), sorted(set(sys.modules) - before)), pipe)
        finally:
            os._exit(status)

    def poll(self) -> int | None:
        """The status if the fork has ended."""
        if self._status is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = os.waitstatus_to_exitcode(status) if ended else None
        return self._status

    def wait(self) -> int:
        return self.ended().status

    def ended(self) -> Ended:
        """Waits for the end. Call it once."""
        with os.fdopen(self._reader) as pipe:
            counted = pipe.read()
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        operations, imported = json.loads(counted) if counted else (0, ())
        return Ended(self._status, self._log.read_text(errors="replace"), operations, tuple(imported))


def import_all(modules: Iterable[str]) -> None:
    """Imports modules that a call imported. Some cannot be imported by their name alone."""
    for module in modules:
        with contextlib.suppress(Exception):
            import_module(module)
