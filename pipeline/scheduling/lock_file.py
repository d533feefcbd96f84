"""DVC's file of the paths that its processes read and write, .dvc/tmp/rwlock.

DVC rewrites it in place, before and after each stage. A process that is killed meanwhile leaves it empty, and
every later `dvc repro` fails: "Unable to read RWLock-file".
"""

import json
import sys
from pathlib import Path

FOLDER = Path(".dvc/tmp")


def remove_damaged_lock_file(folder: Path = FOLDER) -> None:
    """Removes the file if it is not JSON. DVC then writes a new one, as after a clone."""
    path = folder / "rwlock"
    if not _is_damaged(path):
        return
    from dvc.lock import make_lock

    with make_lock(str(folder / "rwlock.lock"), tmp_dir=str(folder)):  # which DVC holds while it writes
        if _is_damaged(path):
            path.unlink()
            sys.stderr.write(f"removed {path}, which a killed DVC left damaged\n")
            sys.stderr.flush()


def _is_damaged(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return False
