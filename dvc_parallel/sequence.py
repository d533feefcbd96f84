"""A run in sequence: `dvc repro` in this process. On SIGTERM it ends the stage that it runs; `dvc` would
leave the stage running."""

import contextlib
import signal
from collections.abc import Sequence

import psutil

from dvc_parallel.graph import Stages
from dvc_parallel.lock_file import FOLDER, UNFINISHED, repair_lock_file

_GRACE = 8.0  # seconds; a stage ends within five


def run(arguments: Sequence[str]) -> int:
    """The exit status of `dvc repro ARGUMENTS`."""
    before, unfinished = signal.signal(signal.SIGTERM, _end), FOLDER / UNFINISHED
    try:
        repair_lock_file()
        if unfinished.exists():
            Stages().close()  # which removes what the earlier run left
        if FOLDER.is_dir():
            unfinished.touch()
        from dvc.cli import main as dvc

        if (status := int(dvc(["repro", *arguments]))) == 0:
            unfinished.unlink(missing_ok=True)
        return status
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = psutil.Process().children()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    psutil.wait_procs(children, _GRACE)
    raise SystemExit(128 + signal.SIGTERM)
