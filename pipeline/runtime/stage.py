"""The start-up of every stage. A stage ends when DVC ends and runs in the root of the project. A UserError
becomes a message and exit status 1, Ctrl-C exit status 130."""

import contextlib
import fcntl
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from unseen.runtime.errors import UserError
from unseen.runtime.files import system_problem
from unseen.runtime.flock import held
from unseen.runtime.leftovers import remove_leftover_directories
from unseen.runtime.memory import LEAST, require_memory
from unseen.runtime.names import say
from unseen.runtime.version_lock import require_accepted

PACKAGE = Path(__file__).resolve().parents[1]
GRAPH = "dvc.yaml"
_HERE = Path.cwd()
# the project: the directory of dvc.yaml at or above the current one; without one, the current directory
ROOT = next((folder for folder in (_HERE, *_HERE.parents) if (folder / GRAPH).is_file()), _HERE)
_PR_SET_PDEATHSIG = 1
# Environment variable that dvc.yaml sets to the process id of DVC. DVC may end while the stage still imports.
PARENT = "UNSEEN_PARENT"
# Stages that compute without torch, FAISS and OpenBLAS; resolve checks the memory before it imports torch.
_SMALL = ("resolve", "ingest")
_GRACE = 5.0  # seconds between SIGTERM and the forced end of a stage, in which it can end its cluster


def end_with_parent(parent: int | None = None) -> None:
    """Makes Linux send SIGTERM to this process when its parent ends. If the process `parent` has already
    ended, this process ends at once.

    Otherwise a stage would continue after `dvc repro` was killed, and the next `dvc repro` would start a
    second copy of it.
    """
    if sys.platform == "linux":
        import ctypes  # here and in `main`: `unseen --help` needs neither

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    signal.signal(signal.SIGTERM, _end)
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGTERM)


def start_closing() -> None:
    """Ignores SIGTERM from now on, because it would interrupt the closing of files and cluster, and ends the
    process after _GRACE seconds in any case."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    timer = threading.Timer(_GRACE, os._exit, (128 + signal.SIGTERM,))
    timer.daemon = True
    timer.start()


class _Terminated(SystemExit):
    """Raised in a stage that received SIGTERM."""


def _end(*_: object) -> None:
    """Handles SIGTERM: raises _Terminated, so that the stage closes its files and cluster.

    Python discards an exception that a signal raises in a destructor or a callback. Therefore a timer ends
    the process in any case, and the message about the discarded exception is suppressed.
    """
    start_closing()
    print_unraisable = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if not isinstance(unraisable.exc_value, _Terminated):
            print_unraisable(unraisable)

    sys.unraisablehook = hook
    raise _Terminated(128 + signal.SIGTERM)


@contextlib.contextmanager
def ending_late() -> Iterator[Callable[[], bool]]:
    """A block that SIGTERM does not interrupt: the stage ends after it. The block receives a function that
    tells whether SIGTERM came, after which it has _GRACE seconds.

    In a thread and in a process that is no stage, signals remain as they are.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not _end:
        yield lambda: False
        return
    came = threading.Event()

    def note(*_: object) -> None:
        start_closing()
        came.set()

    signal.signal(signal.SIGTERM, note)
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if came.is_set() else _end)
    if came.is_set():
        raise _Terminated(128 + signal.SIGTERM)


def main(run: Callable[..., None], *axes: str) -> None:
    """Runs `run(**{axis: value})` as the body of a stage script; `axes` are its positional arguments
    (dataset, method, fold, seed). A limit of memory below the needs of torch, FAISS and OpenBLAS is an error
    in a stage that computes with them."""
    import argparse
    import faulthandler

    from unseen.runtime.running_code import require_unchanged

    parent = os.environ.pop(PARENT, "")
    end_with_parent(int(parent) if parent else None)
    faulthandler.enable()  # a library that ends the process shows where
    parser = argparse.ArgumentParser(description=(run.__doc__ or "").split("\n")[0])
    for axis in axes:
        parser.add_argument(axis, type=int if axis in ("fold", "seed") else str)
    arguments = vars(parser.parse_args())
    try:
        with report_errors():
            _require_own_clone(Path(sys.argv[0]).resolve())
            enter_project()
            require_accepted(ROOT, PACKAGE)
            if Path(sys.argv[0]).stem not in _SMALL:
                require_memory(LEAST)
            remove_leftover_directories(ROOT)
            with held(ROOT, lock=fcntl.LOCK_SH | fcntl.LOCK_NB):  # read by dvc_parallel/lock_file.py
                run(**arguments)
                require_unchanged()
    finally:
        # Nothing is left to close: SIGTERM may interrupt the shutdown of Python.
        if signal.getsignal(signal.SIGTERM) is _end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def in_project() -> bool:
    """Changes to the directory of the project. Without one, stays and returns False."""
    if not (ROOT / GRAPH).is_file():
        return False
    os.chdir(ROOT)
    return True


def enter_project() -> None:
    """Changes to the directory of the project. Raises UserError without one."""
    if not in_project():
        raise UserError(
            f"Neither {ROOT} nor a directory above it contains {GRAPH}.",
            "`unseen init DIRECTORY` makes a project there; a clone of the repository is one, too.",
        )


def _require_own_clone(script: Path) -> None:
    """Raises UserError if the stage `script` belongs to another clone than the imported package. A stage of
    an installed package is `unseen/stages/<name>.py`."""
    clone, imported = script.parent.parent, PACKAGE.parent
    if script.parent.name == "stages" and clone not in (PACKAGE, imported):
        raise UserError(
            f"{script} belongs to {clone}, but the package `unseen` was imported from {imported}.",
            f"Run it from its clone: cd {shlex.quote(str(clone))} && python -m unseen.stages.{script.stem}",
        )


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turns a UserError and a problem of the system (files.system_problem) into a message and exit status 1,
    Ctrl-C into 130."""
    try:
        yield
    except UserError as error:
        say(f"error: {error}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        say("interrupted: the same command continues from here.")
        raise SystemExit(128 + signal.SIGINT) from None
    except Exception as error:
        problem = system_problem(error)
        if problem is None:
            raise
        say(f"error: {problem}")
        raise SystemExit(1) from None
