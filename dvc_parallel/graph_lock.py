"""dvc.lock, which DVC rewrites in place after each stage.

A DVC that is killed meanwhile leaves a part of it or an empty file, and every later command of DVC fails:
"'./dvc.lock' validation failed".
"""

import subprocess
from pathlib import Path

from dvc_parallel.atomic import repair

NAME = "dvc.lock"


def repair_graph_lock() -> None:
    """Replaces a damaged dvc.lock of the working directory by that of the last commit, or removes it if git
    has none. DVC then restores the outputs of later stages from its run cache, or computes them again."""
    repair(Path(NAME), Path(".dvc/tmp/lock"), _is_damaged, _committed, wait=True)


def _committed(path: Path) -> tuple[bytes | None, str]:
    committed = subprocess.run(["git", "show", f"HEAD:./{NAME}"], capture_output=True, check=False)
    if committed.returncode:
        return None, f"removed {path}, which a killed DVC left damaged"
    done = f"replaced {path}, which a killed DVC left damaged, by that of the last commit"
    return committed.stdout, done


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
