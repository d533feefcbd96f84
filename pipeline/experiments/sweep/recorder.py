"""Records and prints every validation of the trials of a sweep."""

from pathlib import Path
from typing import Any

from unseen.experiments.sweep.record import Trial, save
from unseen.runtime.names import say

_FIELDS = ("iteration", "epoch", "loss", "recall_at_1", "r_precision", "map_at_r", "seconds")


class Recorder:
    """The listener of a sweep (pipeline/cluster/trials.py): `records[i]` is trial i."""

    def __init__(self, records: list[Trial], directory: Path, iterations: int, metric: str) -> None:
        self.records, self.directory = records, directory
        self.iterations, self.metric = iterations, metric
        self.ended: set[int] = set()

    def reported(self, trial: int, result: dict[str, Any]) -> None:
        record = self.records[trial]
        if "error" in result:
            record.error = result["error"]
            say(f"trial {trial} failed: {record.error_line}")
        elif "iteration" in result:
            self._validated(record, result)
        self.ended |= {trial} if "ended" in result else set()
        save(self.directory, record)

    def completed(self, trial: int) -> None:
        record = self.records[trial]
        record.finished = True
        record.stopped_early = record.error is None and trial not in self.ended
        save(self.directory, record)

    def died(self, trial: int, reason: str) -> None:
        record = self.records[trial]
        record.finished, record.error = True, f"its process ended, twice: {reason}"
        say(f"trial {trial} failed: {record.error_line}")
        save(self.directory, record)

    def _validated(self, record: Trial, result: dict[str, Any]) -> None:
        if not record.add({name: float(result[name]) for name in _FIELDS}):
            return
        values = ", ".join(f"{field} {value}" for field, value in record.values.items())
        values += f", seed {record.seed}" if len({other.seed for other in self.records}) > 1 else ""
        numbers = f"loss {result['loss']:.4g}  {self.metric} {result[self.metric]:.4f}"
        iteration = f"iteration {result['iteration']}/{self.iterations}"
        say(f"trial {record.number} ({values}): {iteration}  {numbers}")
