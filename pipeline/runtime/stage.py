"""The prologue of every stage: dies with DVC, runs from the project root, turns a UserError into a message
and exit status 1, Ctrl-C into 130."""

import argparse
import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.runtime.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
_PR_SET_PDEATHSIG = 1
# environment: the process that started the stage, told by dvc.yaml, which may end while the stage still
# imports
_PARENT = "UNSEEN_PARENT"
_GRACE = 5.0  # seconds that a stage has to end its cluster once it was told to end


def end_with_parent(parent: int | None = None) -> None:
    """Asks Linux to send SIGTERM to this process when its parent ends; ends at once if it has already ended,
    where its id `parent` is known.

    `dvc repro` killed by SIGTERM or SIGKILL leaves its stage running otherwise; the next `dvc repro` would
    start a second copy beside it.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


class _Terminated(SystemExit):
    """The exit of a stage that was told to end."""


def _end(*_: object) -> None:
    """Unwinds the stage, once: another signal would strike what the first one's exit closes, and leave it
    half closed.

    The exception of a signal is lost where it happens to strike a destructor or a callback: a timer stands
    behind it, and nothing is said of it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    timer = threading.Timer(_GRACE, os._exit, (128 + signal.SIGTERM,))
    timer.daemon = True
    timer.start()
    say = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, _Terminated) else say(lost)
    raise _Terminated(128 + signal.SIGTERM)


def main(run: Callable[..., None], *axes: str) -> None:
    """Runs `run(**{axis: value})` as the body of a stage script; `axes` are its positional arguments
    (dataset, method, seed)."""
    parent = os.environ.pop(_PARENT, "")
    end_with_parent(int(parent) if parent else None)
    parser = argparse.ArgumentParser(description=(run.__doc__ or "").split("\n")[0])
    for axis in axes:
        parser.add_argument(axis, type=int if axis == "seed" else str)
    arguments = vars(parser.parse_args())
    os.chdir(ROOT)
    try:
        with report_errors():
            run(**arguments)
    finally:
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(
                signal.SIGTERM, signal.SIG_DFL
            )  # Python's own end can be broken off: there is nothing left to unwind


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turns a UserError into its message and exit status 1, Ctrl-C into 130."""
    try:
        yield
    except UserError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: the same command goes on from here.\n")
        raise SystemExit(128 + signal.SIGINT) from None
