"""What workers print, on the terminal or in the log of the stage.

A worker appends to a file beside the state of the run, which workers on any machine can reach. The stage
copies what is appended. So a progress line stays one line on a terminal, without the prefix and the delay of
Ray's own log forwarding.
"""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from unseen.cluster.alongside import alongside


class Console(io.TextIOWrapper):
    """The standard error of a worker: unbuffered, and a terminal if the standard error of the stage is one.

    `columns` is `terminal_columns(sys.stderr)` of the stage: None if it is a log.
    """

    def __init__(self, path: Path, columns: int | None) -> None:
        super().__init__(io.FileIO(path, "a"), encoding="utf-8", write_through=True)
        self.columns = columns

    def isatty(self) -> bool:
        return self.columns is not None


@contextlib.contextmanager
def copied(path: Path, interval: float = 0.1) -> Iterator[None]:
    """Copies to standard error what is appended to `path` while the block runs, without earlier lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    earlier = path.stat().st_size

    def copy(done: threading.Event) -> None:
        with open(path, encoding="utf-8", errors="replace", newline="") as source:
            source.seek(earlier)
            last = False
            while not last:
                last = done.wait(interval)
                if text := source.read():
                    sys.stderr.write(text)
                    sys.stderr.flush()

    with alongside("console", copy):
        yield
