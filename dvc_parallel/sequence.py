"""A run in sequence: `dvc repro` on this terminal."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType


def run(arguments: Sequence[str]) -> int:
    """The exit status of `dvc repro ARGUMENTS`. Ctrl-C reaches it directly; SIGTERM is forwarded."""
    command = [sys.executable, "-m", "dvc_parallel.dvc_process", str(os.getpid()), "repro", *arguments]
    process = subprocess.Popen(command)

    def forward(number: int, frame: FrameType | None) -> None:
        process.terminate()

    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
    }
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status
