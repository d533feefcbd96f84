"""An experiment: rows at places with seeds -> records.

    row       what is compared, a recipe
    place     what a row is trained and judged on: a data set, a network with a split of photos
    run       one row at one place with one seed;  record: its numbers (evaluation/record.py)

A runner computes records. A store keeps each as a file that is named by a digest of its settings, so that an
experiment that was killed continues, and another one with equal runs reads them.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from unseen.evaluation.record import Record, Run
from unseen.methods.settings import Recipe
from unseen.runtime.files import write_json
from unseen.runtime.names import say
from unseen.runtime.progress import Progress


@dataclass(frozen=True)
class Experiment:
    """Runs, and the name that the progress shows."""

    name: str
    runs: tuple[Run, ...]


@runtime_checkable
class Runner(Protocol):
    """What computes records."""

    def settings(self, run: Run) -> dict[str, Any]:
        """All that determines the record of a run, as plain values."""

    def recipe(self, run: Run) -> Recipe:
        """What a run trains; nothing with 0 iterations."""

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        """The records of these runs, in any order, so that runs can share work."""


class Store:
    """Records as DIRECTORY/<24 digits of the sha256 of the settings>.json."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, settings: dict[str, Any]) -> Record | None:
        """The record of these settings; None without one."""
        path = self._path(settings)
        return Record.parse(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None

    def write(self, record: Record) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        write_json(self._path(record.settings), record.model_dump(mode="json"))

    def _path(self, settings: dict[str, Any]) -> Path:
        return self._directory / f"{digest_of(settings)}.json"


def grid(rows: Sequence[str], places: Sequence[str], seeds: Sequence[int]) -> tuple[Run, ...]:
    """The runs of all rows at all places with all seeds."""
    return tuple(Run(*each) for each in product(rows, places, seeds))


def records(experiment: Experiment, runner: Runner, store: Store) -> dict[Run, Record]:
    """The records of an experiment. Those that the store lacks are computed, once for equal settings, and
    written when they come."""
    settings = {run: runner.settings(run) for run in experiment.runs}
    result = {run: record for run in settings if (record := store.read(settings[run])) is not None}
    missing: dict[str, list[Run]] = {}
    for run in settings:
        if run not in result:
            missing.setdefault(digest_of(settings[run]), []).append(run)
    needed = [equal[0] for equal in missing.values()]
    if needed:
        say(f"{experiment.name}: {cost(map(runner.recipe, needed))}")
    with Progress(experiment.name, len(settings), "runs") as progress:
        progress.resume_at(len(result))
        for run, record in runner.compute(needed):
            store.write(record)
            equal = missing[digest_of(settings[run])]
            result |= dict.fromkeys(equal, record)
            progress.advance(1, f"{run.row} {run.place}")
            progress.skip(len(equal) - 1)
    return {run: result[run] for run in settings}


def cost(recipes: Iterable[Recipe]) -> str:
    """The trainings of these recipes in words."""
    steps = [(recipe.training.iterations, recipe.batch.size) for recipe in recipes]
    trainings = sum(iterations > 0 for iterations, _ in steps)
    images = sum(iterations * size for iterations, size in steps)
    return f"{trainings:,} trainings with {images:,} images in all steps"


def digest_of(settings: dict[str, Any]) -> str:
    """The name of a record: the first 24 digits of the sha256 of its settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]
