"""The records of the trials of a sweep, one JSON file each, rewritten at every validation, so that a killed
sweep continues with the unfinished trials."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.runtime.files import write_json
from pipeline.studies.sweep.space import Values


@dataclass
class Trial:
    """One trial: its values, a row per validation (iteration, epoch, loss, validation metrics, seconds), and
    its end."""

    number: int
    values: Values
    rows: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False
    stopped_early: bool = False  # by the scheduler
    error: str | None = None

    @property
    def seconds(self) -> float:
        """The time in its training loop. The count restarts when a trial resumes; the parts are added."""
        total, last = 0.0, 0.0
        for row in self.rows:
            if row["seconds"] < last:
                total += last
            last = row["seconds"]
        return total + last

    @property
    def error_line(self) -> str:
        """The most informative line of the error: the last one of a traceback, the first one of a message."""
        lines = (self.error or "").strip().splitlines() or [""]
        return lines[-1] if lines[0].startswith("Traceback") else lines[0]

    def best(self, metric: str) -> float | None:
        """The highest value of `metric`, or None before the first validation."""
        return max((row[metric] for row in self.rows), default=None)

    def add(self, row: dict[str, float]) -> None:
        """Appends a validation. If a resumed trial repeats a validation, the new row replaces the old one."""
        self.rows = [*(old for old in self.rows if old["iteration"] < row["iteration"]), row]


def load(directory: Path, trials: list[Values]) -> list[Trial]:
    """The trials with their records in `directory`. A trial without a record, or one that failed, starts
    again."""
    records = []
    for number, values in enumerate(trials):
        record, path = Trial(number, values), _path(directory, number)
        if path.exists():
            saved = Trial(**json.loads(path.read_text(encoding="utf-8")))
            record = saved if saved.error is None else record
        records.append(record)
    return records


def save(directory: Path, trial: Trial) -> None:
    """Writes the record of a trial."""
    value: dict[str, Any] = asdict(trial)
    write_json(_path(directory, trial.number), value)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:03d}.json"
