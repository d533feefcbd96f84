"""Claims with whole networks: both arms are trained from scratch on generated images.

An arm is a row of a study on a small set (pipeline/config/study_row.py), so it is resolved, trained and
embedded as the rows of `unseen study --mini`. built_in.yaml defines the images and the lengths, and lists the
claims that cannot be put to this setting.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
from pydantic import Field

from unseen.config.definitions import Definitions
from unseen.config.document import Document, Params
from unseen.config.inputs import digest
from unseen.config.layers import Layers
from unseen.config.study_row import StudyRow
from unseen.data.ingest.settings import PartsSource
from unseen.evaluation.record import FLOOR
from unseen.experiments.claims.claim import Claim, Claims
from unseen.experiments.claims.photos import RECORDS
from unseen.experiments.claims.results import Results, floor_of
from unseen.experiments.claims.run import arms_of, judged, require_seeds
from unseen.experiments.claims.whole_runner import WholeRunner, generated_shards
from unseen.experiments.experiment import Experiment, Store, grid, records
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.settings import Scalar, Strict

PATH = Path(__file__).with_name("built_in.yaml")
COMMITTED = Path(__file__).with_name("built_in.json")
RESULTS = "built_in.json"  # in the output directory
_MEASURED = ("training.gradient_noise",)  # fields of an arm for what it measures


class BuiltIn(Strict):
    """The content of built_in.yaml."""

    source: PartsSource
    recipe: dict[str, Scalar]  # changes of every arm, by dotted field
    arms: dict[str, dict[str, Scalar | None]] = Field(default={})  # further changes of some arms
    excluded: dict[str, str]  # claim -> reason


@cache
def built_in(path: Path = PATH) -> BuiltIn:
    """The setting of a file. Raises UserError for an unknown key or a wrong value."""
    return _document(path).parsed(BuiltIn, "Correct the setting.")


@cache
def _document(path: Path = PATH) -> Document:
    return Document(path, f"pipeline/experiments/claims/{path.name}" if path == PATH else None)


def whole(claims: Claims, setting: BuiltIn, arm: str) -> Layers:
    """The layers of the whole network of an arm."""
    fields = setting.recipe | setting.arms.get(arm, {})
    of_arm = {field: value for field, value in claims.arms[arm].items() if field != "like"}
    like = str(claims.arms[arm]["like"])
    unreplaced = (*fields, *_MEASURED)  # by the small set
    row = StudyRow(_document(), f"arms.{arm}", like, of_arm | fields, "published", unreplaced)
    return Definitions(Params(text=""), {"arm": row}).layers(setting.source.kind, "arm")


def definition(claims: Claims, setting: BuiltIn, name: str) -> str:
    """A digest of what determines the result of a claim: the images, the recipes of its arms, its metric."""
    claim = claims.claims[name]
    recipes = [whole(claims, setting, arm).recipe().model_dump(mode="json") for arm in arms_of(claim)]
    source = setting.source.model_dump(mode="json")
    return digest([source, recipes, claim.metric, claim.expects, claim.margin])


def run_built_in(
    claims: Claims, setting: BuiltIn, names: Sequence[str], output: Path, seeds: Sequence[int]
) -> Results:
    """The results of claims. Writes OUTPUT/built_in.json, and keeps a record of each training, with which a
    killed run continues. A killed training continues too.

    Raises UserError for fewer than two seeds, and if no claim can be put to this setting.
    """
    require_seeds(seeds)
    chosen = chosen_claims(claims, setting.excluded, names)
    arms = dict.fromkeys(arm for claim in chosen.values() for arm in arms_of(claim))
    recipes = {arm: whole(claims, setting, arm).recipe() for arm in arms}
    shards = generated_shards(output, setting.source)
    split = shards.directory.name  # the set has one split, which has its name
    place_of = {arm: f"{recipe.backbone.name}/{split}" for arm, recipe in recipes.items()}
    places = sorted(set(place_of.values()))
    floors = grid([FLOOR], places, seeds)
    trainings = tuple(run for arm in arms for run in grid([arm], [place_of[arm]], seeds))
    experiment = Experiment("claims", floors + trainings)
    of_network = {(arm, recipe.backbone.name): recipe for arm, recipe in recipes.items()}
    values = records(experiment, WholeRunner({split: shards}, of_network), Store(output / RECORDS))
    results = Results(
        data=split,
        photos=len(shards),
        classes=len(shards.class_names),
        test_classes={split: len(np.unique(shards.labels[shards.rows("test")]))},
        at_most=setting.source.images_per_class,
        seeds=len(seeds),
        cpu_seconds=round(sum(values[run].cpu_seconds for run in trainings)),
        floors=[floor_of(place, [values[run] for run in grid([FLOOR], [place], seeds)]) for place in places],
        claims=judged(
            claims,
            {name: definition(claims, setting, name) for name in chosen},
            {name: [place_of[claim.first]] for name, claim in chosen.items()},
            values,
        ),
    )
    write_json(output / RESULTS, results.model_dump(mode="json"))
    return results


def chosen_claims(claims: Claims, excluded: Mapping[str, str], names: Sequence[str]) -> dict[str, Claim]:
    """The named claims that can be put to a setting. Raises UserError if there is none."""
    chosen = {name: claims.claims[name] for name in names if name not in excluded}
    if not chosen:
        raise UserError(
            f"{names[0]} is not compared with whole networks: {excluded[names[0]]}",
            "Compute it on photos: --photos, without --whole.",
        )
    return chosen
