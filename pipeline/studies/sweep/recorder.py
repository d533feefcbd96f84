"""The eyes of a sweep in Tune."""

import sys
from pathlib import Path
from typing import Any

from ray.tune import Callback

from pipeline.studies.sweep.record import Trial, save


class Recorder(Callback):
    """What Tune calls in the stage's process: records every validation and shows it."""

    def __init__(self, records: list[Trial], directory: Path, iterations: int, metric: str) -> None:
        self.records, self.directory, self.iterations, self.metric = records, directory, iterations, metric
        self.ended: set[int] = set()

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        number = trial.config["trial"]
        known = self.records[number]
        if "error" in result:
            known.error = result["error"]
            _say(f"trial {number} failed: {known.why}")
        elif "iteration" in result:
            kept = ("iteration", "epoch", "loss", "recall_at_1", "r_precision", "map_at_r")
            known.add({name: float(result[name]) for name in kept} | {"seconds": float(result.get("seconds", result["time_total_s"]))})
            said = ", ".join(f"{field} {value}" for field, value in known.values.items())
            numbers = f"loss {result['loss']:.4g}  {self.metric} {result[self.metric]:.4f}"
            _say(f"trial {number} ({said}): iteration {result['iteration']}/{self.iterations}  {numbers}")
        self.ended |= {number} if "ended" in result else set()
        save(self.directory, known)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self.records[trial.config["trial"]]
        known.finished = True
        known.stopped_early = known.error is None and known.number not in self.ended
        save(self.directory, known)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        known = self.records[trial.config["trial"]]
        ended = str(trial.get_error() or "").strip().splitlines()
        known.finished, known.error = True, f"its process ended, twice: {ended[-1] if ended else 'no reason is known'}"
        _say(f"trial {known.number} failed: {known.why}")
        save(self.directory, known)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
