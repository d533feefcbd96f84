"""How often a training writes checkpoints: an expensive one (a large network) is rarer."""

import time
from collections.abc import Callable

SHORT = 0.2  # seconds: cheaper checkpoints are always due
SHARE = 0.02  # of the time of a training for more expensive ones


class CheckpointPace:
    """The time of the last checkpoint and its cost, in seconds of `clock`.

    The cost: the time in which the training waited for it, and the processor time of its writer, which the
    training may lack on a machine with few cores. The time in which the writer waits for the disk is not a
    cost.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ended, self._cost, self._lasted = clock(), 0.0, 0.0

    def ended(self, cost: float, lasted: float) -> None:
        """A checkpoint ended that took `lasted` seconds, with the disk."""
        self._ended, self._cost, self._lasted = self._clock(), cost, lasted

    def due(self) -> bool:
        """Whether another checkpoint like the last one would cost at most SHARE of the time since it."""
        return self._cost <= SHORT or self._cost <= SHARE * (self._clock() - self._ended)

    def patience(self) -> float:
        """The seconds that a training waits for the end of a checkpoint to write the next one: none if the
        last one took long. So a small network has all its checkpoints, and a slow disk delays no step."""
        return SHORT if self._lasted <= SHORT else 0.0
