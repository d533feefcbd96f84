"""Progress of long work: a live line on a terminal, a plain line every few seconds in a log."""

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import TextIO, TypeVar

Item = TypeVar("Item")


class Progress:
    """Counts `total` units of work and shows rate, share, ETA and whatever `note` says.

    On a terminal one line is rewritten; elsewhere a line is printed every `interval` seconds, and one at the end.
    """

    def __init__(self, label: str, total: int | None, unit: str, stream: TextIO | None = None, interval: float = 5.0) -> None:
        self.label, self.total, self.unit = label, total, unit
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.interval = 0.2 if self.live else interval
        self.done = 0
        self.first = 0
        self.note = ""
        self.shown: tuple[int, str] | None = None
        self.start = self.last = time.monotonic()

    def resume_at(self, done: int) -> None:
        """Work that an earlier run did: counted as done, left out of the rate."""
        self.done = self.first = done

    def advance(self, count: int = 1, note: str | None = None) -> None:
        self.done += count
        if note is not None:
            self.note = note
        now = time.monotonic()
        if now - self.last >= self.interval:
            self.last = now
            self._show(now)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.shown != (self.done, self.note):
            self._show(time.monotonic())
        if self.live:
            self.stream.write("\n")
            self.stream.flush()

    def _show(self, now: float) -> None:
        self.shown = (self.done, self.note)
        elapsed = max(now - self.start, 1e-9)
        rate = (self.done - self.first) / elapsed
        parts = [f"{self.done:,}/{self.total:,} {self.unit}" if self.total else f"{self.done:,} {self.unit}"]
        if rate > 0:
            parts.append(_rate(rate, self.unit))
        if self.total and rate > 0 and self.done < self.total:
            parts.append(f"ETA {_clock((self.total - self.done) / rate)}")
        else:
            parts.append(f"in {_clock(elapsed)}")
        if self.note:
            parts.append(self.note)
        line = f"{self.label}: " + "  ".join(parts)
        self.stream.write(f"\r\x1b[2K{line}" if self.live else line + "\n")
        self.stream.flush()


def track(items: Iterable[Item], label: str, unit: str, total: int | None = None) -> Iterator[Item]:
    """Yields `items` and shows how far it got."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(label, total, unit) as progress:
        for item in items:
            yield item
            progress.advance()


def _rate(rate: float, unit: str) -> str:
    """Units per second, or per minute or hour where that would be less than one."""
    per, factor = next((each for each in (("s", 1), ("min", 60)) if rate * each[1] >= 1), ("h", 3600))
    amount = rate * factor
    return f"{amount:,.0f} {unit}/{per}" if amount >= 10 else f"{amount:.1f} {unit}/{per}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
