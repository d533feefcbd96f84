"""The results of claims as a file: effects, intervals and verdicts. It contains no path and no time of
day."""

import json
from pathlib import Path

from pydantic import ValidationError

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


class Results(Strict):
    """All results of a run."""

    data: str  # name of the folder of photos
    photos: int
    classes: int
    test_classes: dict[str, int]
    at_most: int  # photos of a class
    seeds: int
    cpu_seconds: int  # of trainings and evaluations, without maps
    floors: list[Floor]
    claims: dict[str, Comparison]


def load(path: Path = COMMITTED) -> Results:
    """The results of a file. Raises UserError for a file that is missing or no result of this version."""
    try:
        return Results.parse(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        raise UserError(
            f"{path} is not a result of claims: {error}", "Compute it: `unseen claims`."
        ) from error
