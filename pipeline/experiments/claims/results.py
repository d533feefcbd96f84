"""The results of claims as a file: effects, intervals and verdicts. It contains no path and no time of
day."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from pydantic import ValidationError

from unseen.evaluation.record import Record
from unseen.experiments.claims.claim import OF_CLASSES
from unseen.experiments.claims.verdict import Verdict
from unseen.runtime.errors import UserError
from unseen.runtime.settings import Strict

COMMITTED = Path(__file__).with_name("results.json")


class CellResult(Strict):
    """One network on one split: means of both arms, and the effect."""

    network: str
    split: str
    first: float
    second: float
    difference: float
    low: float
    high: float
    verdict: Verdict


class Comparison(Strict):
    """The effect of a claim: the mean over its cells."""

    definition: str  # Claims.definition when it was computed
    difference: float
    low: float
    high: float
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


def floor_of(place: str, records: Sequence[Record]) -> Floor:
    """The floor at `network/split`: the mean over the records of the seeds."""
    network, split = place.split("/")
    means = {metric: round(mean(each.mean(metric) for each in records), 5) for metric in OF_CLASSES}
    return Floor(network=network, split=split, **means)


def load(path: Path = COMMITTED) -> Results:
    """The results of a file. Raises UserError for a file that is missing or no result of this version."""
    try:
        return Results.parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise UserError(
            f"{path} is not a result of claims: {error}", "Compute it: `unseen claims`."
        ) from error
