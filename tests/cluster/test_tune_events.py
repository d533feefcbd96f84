"""The failures of a trial under Ray Tune: those without a new validation in between count."""

from typing import Any

import pytest
from ray.tune.experiment import Trial

from unseen.cluster.listener import Listener
from unseen.cluster.tune_events import Events


class Reports(list[Any]):
    """A listener that keeps what is reported."""

    def reported(self, trial: int, result: dict[str, Any]) -> None:
        self.append((trial, result))

    def completed(self, trial: int) -> None:
        raise AssertionError(f"trial {trial} ended")

    def died(self, trial: int, reason: str) -> None:
        raise AssertionError(f"trial {trial} died: {reason}")


@pytest.mark.parametrize(("reports", "recovers"), [((10, 20, 30), True), ((10, 10, 10), False)])
def test_progress_resets_the_count_of_the_failures_of_a_trial(
    reports: tuple[int, ...], recovers: bool
) -> None:
    """A death follows each report. A resumed trial reports its earlier iterations again."""
    trial = Trial("loop", stub=True, config={"trial": 3}, max_failures=1)
    listener = Reports()
    assert isinstance(listener, Listener)
    events, seen = Events(listener), 0
    for iteration in reports:
        for again in range(10, iteration + 1, 10):
            events.on_trial_result(0, [trial], trial, {"iteration": again})
            seen += 1
        trial.run_metadata.num_failures += 1
    assert trial.should_recover() is recovers
    assert len(listener) == seen
