"""Progress of long work: one line on a terminal, cut to its width; plain lines every few seconds in a log."""

import io
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO, TypeVar

from tqdm import tqdm

from unseen.runtime.names import printable

Item = TypeVar("Item")
Stream = TextIO | io.TextIOBase


class Progress(tqdm):
    """Counts `total` units of work and shows the rate, the remaining time and a note of the caller.

    On a terminal tqdm rewrites one line. In a log a line is printed every `interval` seconds and at the end.
    Without a label nothing is shown.
    """

    monitor_interval = 0  # no thread that redraws: every `advance` checks the time instead

    def __init__(
        self,
        label: str | None,
        total: int | None,
        unit: str,
        stream: Stream | None = None,
        interval: float = 5.0,
    ) -> None:
        stream = stream or sys.stderr
        self.columns = terminal_columns(stream)
        self.note = ""
        self.last_logged: tuple[int, str] | None = None  # the last count and note in a log
        super().__init__(
            desc=label,
            disable=label is None,
            total=total,
            unit=unit,
            file=stream,
            leave=self.columns is not None,  # keep the last line and end it with a line break; not in a log
            mininterval=interval if self.columns is None else 0.2,
            miniters=0,
            smoothing=0,  # the mean rate, which pauses for validations change little
            delay=1,  # no line before there is progress
            bar_format="{line}",
        )
        self.delay = 0

    @property
    def done(self) -> int:
        return int(self.n)

    def resume_at(self, done: int) -> None:
        """Work of an earlier run: counted as done, excluded from the rate."""
        self.n = self.initial = self.last_print_n = done

    def skip(self, count: int = 1) -> None:
        """Work of an earlier run between that of this run: counted as done, excluded from the rate."""
        self.initial += count
        self.advance(count)

    def advance(self, count: int = 1, note: str | None = None) -> None:
        if note is not None:
            self.note = note
        self.update(count)

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values that tqdm formats: the text of the line, and the width to which it is cut."""
        values = super().format_dict
        return {**values, "ncols": self.columns, "line": self._line(values["elapsed"])}

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draws the line on a terminal, or prints it to a log if it has changed."""
        if self.columns is not None:
            return bool(super().display(msg, pos))
        if self.last_logged != (self.done, self.note):
            self.last_logged = (self.done, self.note)
            self.fp.write(f"{self}\n")
            self.fp.flush()
        return False

    def _line(self, elapsed: float) -> str:
        rate = (self.n - self.initial) / elapsed if elapsed else 0
        parts = [f"{self.n:,}/{self.total:,} {self.unit}" if self.total else f"{self.n:,} {self.unit}"]
        if rate > 0:
            parts.append(_rate(rate, self.unit))
        if self.total and rate > 0 and self.n < self.total:
            parts.append(f"ETA {self.format_interval((self.total - self.n) / rate)}")
        else:
            parts.append(f"in {self.format_interval(elapsed)}")
        if self.note:
            parts.append(self.note)
        return printable(f"{self.desc}: " + "  ".join(parts))


Progress.set_lock(threading.RLock())  # tqdm's default lock is a semaphore between processes


def terminal_columns(stream: Stream) -> int | None:
    """The width of the terminal to which `stream` writes; None if it is not a terminal.

    If the stream has the attribute `columns`, that is the width: the console of a worker has the width of the
    stage's terminal.
    """
    if not stream.isatty():
        return None
    if hasattr(stream, "columns"):
        return int(stream.columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:  # of a notebook, for example
        return 80


def track(items: Iterable[Item], label: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yields `items` and shows the progress."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(label, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()


def _rate(rate: float, unit: str) -> str:
    """Units per second, or per minute or hour if that is less than one."""
    periods = (("s", 1), ("min", 60))
    period, seconds = next((period for period in periods if rate * period[1] >= 1), ("h", 3600))
    amount = rate * seconds
    return f"{amount:,.0f} {unit}/{period}" if amount >= 10 else f"{amount:.1f} {unit}/{period}"
