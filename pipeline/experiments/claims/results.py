"""The results of claims as a file: effects, intervals and verdicts. It contains no path and no time of
day."""

import json
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from unseen.evaluation.record import Record
from unseen.experiments.claims.claim import OF_CLASSES
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Model, Strict

COMMITTED = Path(__file__).with_name("results.json")
# What the rule for better decides: `confirmed` if the better row is the one that the claim expects.
Verdict = Literal["confirmed", "refuted", "equal", "open", "too few classes to decide", "below the floor"]


class Effect(Strict):
    """second - first."""

    difference: float
    low: float | None  # None: too few classes for an interval, or one training and a metric without classes
    high: float | None


class CellResult(Effect):
    """One network on one split: means of both arms, and the effect."""

    network: str
    split: str
    first: float
    second: float


class Comparison(Effect):
    """The effect of a claim: the mean over its cells."""

    definition: str  # Claims.definition when it was computed
    p_value: float  # adjusted in the family of all claims of the run
    verdict: Verdict
    cells: list[CellResult]


class Floor(Strict):
    """The numbers of the features of a network on the test classes of a split, without a head."""

    network: str
    split: str
    map_at_r: float
    recall_at_1: float


class Computed(Strict):
    """What a run compared, and the floors."""

    data: str  # name of the folder of photos
    photos: int
    classes: int
    test_classes: dict[str, int]
    seeds: int
    cpu_seconds: int  # of trainings and evaluations, without maps
    floors: list[Floor]


class Results(Computed):
    """All results of a run."""

    at_most: int  # photos of a class
    claims: dict[str, Comparison]


def floor_of(place: str, record: Record) -> Floor:
    """The floor at `network/split`."""
    network, split = place.split("/")
    means = {metric: round(record.mean(metric), 5) for metric in OF_CLASSES}
    return Floor(network=network, split=split, **means)


def load(path: Path = COMMITTED) -> Results:
    """The results of claims in a file. Raises UserError as `read` does."""
    return read(path, Results)


def read(path: Path, kind: type[Model]) -> Model:
    """The results of a file. Raises UserError for a file that is missing or no result of this version."""
    try:
        return kind.parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise UserError(
            f"{path} is no result of `unseen claims`: {error}", "Compute it with that command."
        ) from error
