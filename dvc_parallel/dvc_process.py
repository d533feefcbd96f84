"""`python -m dvc_parallel.dvc_process PARENT ARGUMENTS` is `dvc ARGUMENTS`, except that it ends with its
parent, the process of number PARENT, and that it repairs the lock file. On SIGTERM it ends the stage that it
runs; `dvc` would leave the stage running.
"""

import contextlib
import signal
import sys

import psutil

from dvc_parallel.lock_file import repair_lock_file
from dvc_parallel.processes import end_with

_GRACE = 8.0  # seconds; a stage ends within five


def main() -> None:
    _, parent, *arguments = sys.argv
    signal.signal(signal.SIGTERM, _end)
    end_with(int(parent))
    repair_lock_file()
    from dvc.cli import main as dvc

    raise SystemExit(dvc(arguments))


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    children = psutil.Process().children()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    psutil.wait_procs(children, _GRACE)
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
