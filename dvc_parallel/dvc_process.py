"""`python -m dvc_parallel.dvc_process ARGUMENTS` is `dvc ARGUMENTS`, except that it ends with the
process that started it, and that it repairs the lock file. On SIGTERM it ends the stage that it runs;
`dvc` would leave the stage running.
"""

import contextlib
import os
import signal
import sys

import psutil

from dvc_parallel.lock_file import repair_lock_file
from unseen.runtime.stage import PARENT, end_with_parent

_GRACE = 8.0  # seconds; a stage ends within five


def main() -> None:
    end_with_parent(int(os.environ.pop(PARENT)))
    signal.signal(signal.SIGTERM, _end)
    repair_lock_file()
    from dvc.cli import main as dvc

    raise SystemExit(dvc(sys.argv[1:]))


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
