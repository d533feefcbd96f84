"""The notice that a worker of a training is to be lost: SIGTERM to a worker, or Ray's announcement for a
node."""

import contextlib
import ctypes
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from unseen.runtime.stage import start_closing

_INTERVAL = 0.5  # seconds between two looks at the file of the notice
_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_calls: list[Any] = []  # kept until the process ends: no function reports that Python has called one


@contextlib.contextmanager
def noticing(file: Path, announced: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """The block receives a function: whether a worker of the training is to be lost. It is true if
    `announced` returns true, or after a worker received SIGTERM and created `file`, which all of them share.

    A worker that received SIGTERM continues for some seconds, in which rank 0 writes a checkpoint of each
    step (`start_closing`).
    """

    def note(*_: object) -> None:
        start_closing()
        file.touch()

    last_look, is_noticed = 0.0, False

    def lost() -> bool:
        nonlocal last_look, is_noticed
        if not is_noticed and time.monotonic() - last_look > _INTERVAL:
            last_look, is_noticed = time.monotonic(), file.exists()
        return is_noticed or announced()

    before: list[Any] = []
    _in_main_thread(lambda: before.append(signal.signal(signal.SIGTERM, note)))
    try:
        yield lost
    finally:
        _in_main_thread(lambda: signal.signal(signal.SIGTERM, before[0]))


def _in_main_thread(function: Callable[[], object]) -> None:
    """Calls `function` in the main thread, when that executes Python next. Ray Train runs the training in
    another thread, in which Python sets no handler of a signal."""

    @_CALLBACK
    def call(_: object) -> int:
        function()
        return 0

    _calls.append(call)
    ctypes.pythonapi.Py_AddPendingCall(call, None)
