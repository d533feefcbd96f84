"""The environment in which a copy of the project runs in tests and campaigns."""

import os
import sys
from pathlib import Path

_REMOVED = ("DVC_", "GIT_", "PYTEST_", "MAKE", "MFLAGS")  # of the process that runs the tests


def environment_of(project: Path, home: Path) -> dict[str, str]:
    """The variables of this process for a copy of the project: its code, this Python, and `home` as home
    directory.

    DVC runs stages in $SHELL. Its default, sh, remains a parent of the stage without `exec`.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_REMOVED)}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(project),  # the command `unseen` runs the code of the copy
        "HOME": str(home),
        "SHELL": "/bin/sh",
        "OMP_WAIT_POLICY": "passive",
        "NO_COLOR": "1",
    }
