"""dvc.lock, which DVC rewrites in place after each stage.

A DVC that is killed meanwhile leaves a part of it or an empty file, and every later command of DVC fails:
"'./dvc.lock' validation failed".
"""

import subprocess
import sys
from pathlib import Path

from dvc_parallel.atomic import replace

NAME = "dvc.lock"


def repair_graph_lock() -> None:
    """Replaces a damaged dvc.lock of the working directory by that of the last commit, or removes it if git
    has none. DVC then restores the outputs of later stages from its run cache, or computes them again."""
    path = Path(NAME)
    if not _is_damaged(path):
        return
    from dvc.lock import make_lock

    folder = Path(".dvc/tmp")
    folder.mkdir(parents=True, exist_ok=True)
    with make_lock(str(folder / "lock"), tmp_dir=str(folder), wait=True):  # which DVC holds while it writes
        if not _is_damaged(path):
            return
        committed = subprocess.run(["git", "show", f"HEAD:./{NAME}"], capture_output=True, check=False)
        if committed.returncode == 0:
            replace(path, committed.stdout)
            text = f"replaced {path}, which a killed DVC left damaged, by that of the last commit"
        else:
            path.unlink()
            text = f"removed {path}, which a killed DVC left damaged"
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _is_damaged(path: Path) -> bool:
    """Whether DVC cannot read the file for another reason than a conflict of git."""
    from dvc.dvcfile import Lockfile
    from dvc.exceptions import DvcException
    from dvc.utils.strictyaml import load

    try:
        load(str(path), Lockfile.SCHEMA)
    except FileNotFoundError:
        return False
    except DvcException:
        return b"<<<<<<<" not in path.read_bytes()
    return False
