"""The records of the trials of a sweep, one JSON file each, rewritten at every validation, so that a killed
sweep continues with the unfinished trials. A trial is one training; a sweep with several seeds has several
trials with equal values."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from unseen.experiments.sweep.space import Values
from unseen.runtime.files import write_json


@dataclass
class Trial:
    """One trial: its values and its seed, a row per validation (iteration, epoch, loss, validation metrics,
    seconds), and its end."""

    number: int
    values: Values
    rows: list[dict[str, float]] = field(default_factory=list)
    finished: bool = False
    stopped_early: bool = False  # by the scheduler
    error: str | None = None
    seed: int = 0

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
        """The highest value of the selection metric `metric`, or None before the first validation."""
        return max((row[metric] for row in self.rows), default=None)

    def add(self, row: dict[str, float]) -> bool:
        """Appends a validation. Returns False for one that is recorded: a resumed trial reports all of them,
        because their record may be lost."""
        is_new = not self.rows or row["iteration"] > self.rows[-1]["iteration"]
        if is_new:
            self.rows.append(row)
        return is_new


def groups_of(trials: list[Trial]) -> list[list[Trial]]:
    """The trials of equal values, which differ in their seed, in the order of their first trial."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(json.dumps(trial.values), []).append(trial)
    return list(groups.values())


def score_of(group: list[Trial], metric: str) -> float | None:
    """The mean over the seeds of the highest validation metric of each training, or None if one of them has
    no validation or failed."""
    scores = [trial.best(metric) for trial in group if trial.error is None]
    values = [score for score in scores if score is not None]
    return sum(values) / len(values) if len(values) == len(group) else None


def load(directory: Path, trials: Sequence[tuple[Values, int]], first: int = 0) -> list[Trial]:
    """The trials, given by values and seed and numbered from `first`, with their records in `directory`. A
    trial without a record of these values, or one that failed, starts again."""
    records = []
    for number, (values, seed) in enumerate(trials, first):
        record, path = Trial(number, values, seed=seed), _path(directory, number)
        if path.exists():
            saved = Trial(**json.loads(path.read_text(encoding="utf-8")))
            record = saved if saved.error is None and saved.values == values else record
        records.append(record)
    return records


def save(directory: Path, trial: Trial) -> None:
    """Writes the record of a trial."""
    value: dict[str, Any] = asdict(trial)
    write_json(_path(directory, trial.number), value)


def _path(directory: Path, number: int) -> Path:
    return directory / f"{number:03d}.json"
