"""How often a training writes checkpoints: a slow one (a large network, a slow disk) is rarer."""

import contextlib
import time
from collections.abc import Callable, Iterator

SHORT = 1.0  # seconds: shorter checkpoints are always due
SHARE = 0.02  # of the time of a training for longer ones


class CheckpointPace:
    """The time of the last checkpoint and what it took, in seconds of `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended, self._took = clock(), 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[None]:
        """Measures the checkpoint that the block writes."""
        began = self._clock()
        yield
        self._ended = self._clock()
        self._took = self._ended - began

    def due(self) -> bool:
        """Whether another checkpoint like the last one would take at most SHARE of the time since it."""
        return self._took <= SHORT or self._took <= SHARE * (self._clock() - self._ended)
