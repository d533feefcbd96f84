"""A thread that runs while a block runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def alongside(name: str, function: Callable[[threading.Event], object]) -> Iterator[None]:
    """Calls `function(done)` in a thread. `done` is set at the end of the block, which waits for the call."""
    done = threading.Event()
    thread = threading.Thread(target=function, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
