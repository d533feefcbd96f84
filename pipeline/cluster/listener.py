"""What receives the reports of trials."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Listener(Protocol):
    """Receives what the trials report, in the process that started them. `trial` is the key of its job."""

    def reported(self, trial: int, result: dict[str, Any]) -> None:
        """A validation: the metrics that the loop reported, and `seconds` since the loop began.

        The last report of a trial has no metrics: {"ended": True} after its last iteration, which a trial
        that the scheduler stops does not reach, or {"error": text}.
        """

    def completed(self, trial: int) -> None:
        """The trial ended by itself, by the scheduler, or after its error was reported."""

    def died(self, trial: int, reason: str) -> None:
        """The process of the trial died twice without a validation in between that is new."""
