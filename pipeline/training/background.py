"""A call in the background of a training: the writer of its checkpoints."""

import concurrent.futures
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from unseen.runtime.names import say


class Background:
    """A thread that executes one call at a time. A method of this class raises the error of a call.

    As a context manager, it waits for the call at the end. If the block raises an error, that of the call is
    written to stderr.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "background")
        self._call: Future[None] | None = None

    def start(self, function: Callable[[], None]) -> None:
        """Starts a call, after the end of the one before."""
        self.wait()
        self._call = self._threads.submit(function)

    def wait(self, seconds: float | None = None) -> bool:
        """Waits at most `seconds` for the call; returns whether it ended."""
        if self._call is None:
            return True
        concurrent.futures.wait([self._call], seconds)
        if not self._call.done():
            return False
        call, self._call = self._call, None
        call.result()
        return True

    def raise_failure(self) -> None:
        """Raises the error of a call that ended with one; does not wait."""
        self.wait(0.0)

    def __enter__(self) -> "Background":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        except Exception as failure:
            if error is None:
                raise
            say(f"{failure}")
        finally:
            self._threads.shutdown()
