"""Compiles and arms tests/torture/faults.c, which fails the n-th file operation of a process."""

import ctypes
import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ENDS = {"SIGKILL": -1, "power loss": -2}  # the second one after every file has lost what was not synced
FAULTS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EACCES": errno.EACCES, **ENDS}
NONE = 0
_SOURCE = Path(__file__).with_name("faults.c")


def compiler() -> str | None:
    """The C compiler, or None. The library needs Linux."""
    return shutil.which("cc") if sys.platform == "linux" else None


def restart_with_library() -> None:
    """Starts this program again with the library loaded, unless it is."""
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"unseen-torture-{os.getuid()}-{digest}.so"
    if os.environ.get("LD_PRELOAD") == str(library):
        return
    if not library.exists():
        unfinished = library.with_suffix(f".{os.getpid()}")
        command = [compiler() or "cc", "-O1", "-w", "-shared", "-fPIC", "-o", str(unfinished), str(_SOURCE)]
        subprocess.run([*command, "-ldl"], check=True)
        unfinished.replace(library)
    arguments = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, arguments, os.environ | {"LD_PRELOAD": str(library)})


def arm(below: Path, number: int, fault: int) -> None:
    """Counts the operations of this process below a folder from now on. Fails the one with `number` = 1, 2,
    ... by a value of `FAULTS`; NONE fails none."""
    ctypes.CDLL(None).torture_arm(os.fsencode(below), ctypes.c_long(number), fault)


def count() -> int:
    """The number of operations since `arm`."""
    library = ctypes.CDLL(None)
    library.torture_count.restype = ctypes.c_long
    return int(library.torture_count())
