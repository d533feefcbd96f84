"""The events of Ray Tune for a listener. This is a separate module because importing Ray Tune takes
seconds."""

from typing import Any

from ray.tune import Callback

from unseen.cluster.listener import Listener


class Events(Callback):
    """Tune calls this object in the process of the stage. The first report of an iteration resets the count
    of the failures of its trial: a trial that resumes reports its earlier iterations again."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._reached: dict[int, int] = {}  # the last iteration of each trial

    def on_trial_result(
        self,
        iteration: int,
        trials: list[Any],
        trial: Any,
        result: dict[str, Any],
        **info: Any,
    ) -> None:
        number, reached = trial.config["trial"], result.get("iteration", 0)
        if reached > self._reached.get(number, 0):
            self._reached[number] = reached
            trial.run_metadata.num_failures = 0
        self.listener.reported(number, result)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.listener.completed(trial.config["trial"])

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        lines = str(trial.get_error() or "").strip().splitlines()
        self.listener.died(trial.config["trial"], lines[-1] if lines else "no reason is known")
