"""A run in sequence: `dvc repro` on this terminal."""

import signal
from collections.abc import Sequence
from types import FrameType

from dvc_parallel.processes import dvc


def run(arguments: Sequence[str]) -> int:
    """The exit status of `dvc repro ARGUMENTS`. Ctrl-C reaches it directly; SIGTERM is forwarded."""
    process = dvc(["repro", *arguments], {})

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
