"""What a sweep knows of its trials: one JSON file each, rewritten at every validation, so that a killed sweep
goes on with what is missing."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.runtime.files import write_json
from pipeline.studies.sweep.space import Values


@dataclass
class Trial:
    """One trial: its values, the report of each validation (iteration, epoch, loss, validation metrics,
    seconds), and how it ended."""

    number: int
    values: Values
    rows: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False
    stopped_early: bool = False  # by the scheduler
    error: str | None = None

    @property
    def seconds(self) -> float:
        """Spent in its loop. A resumed trial counts from its resumption in each piece, so the pieces add
        up."""
        total, last = 0.0, 0.0
        for row in self.rows:
            if row["seconds"] < last:
                total += last
            last = row["seconds"]
        return total + last

    @property
    def why(self) -> str:
        """The line of the error that says most: the last of a traceback, the first of a message."""
        lines = (self.error or "").strip().splitlines() or [""]
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]

    def best(self, metric: str) -> float | None:
        """The highest value of `metric`, or None where the trial never came to a validation."""
        return max((row[metric] for row in self.rows), default=None)

    def add(self, row: dict[str, float]) -> None:
        """Appends a validation; one that a resumed trial repeats takes the place of the earlier one."""
        self.rows = [*(old for old in self.rows if old["iteration"] < row["iteration"]), row]


def load(directory: Path, trials: list[Values]) -> list[Trial]:
    """The trials with what `directory` holds of them. A failed one is tried again."""
    found = []
    for number, values in enumerate(trials):
        path = _path(directory, number)
        known = (
            json.loads(path.read_text(encoding="utf-8"))
            if path.exists()
            else {"number": number, "values": values}
        )
        found.append(Trial(**known) if known.get("error") is None else Trial(number, values))
    return found


def save(directory: Path, trial: Trial) -> None:
    """Writes the record of a trial."""
    value: dict[str, Any] = asdict(trial)
    write_json(_path(directory, trial.number), value)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:03d}.json"
