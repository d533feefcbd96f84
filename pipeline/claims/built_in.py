"""Claims with whole networks: both arms are trained from scratch on generated images.

An arm is a row of a study on a small set (pipeline/config/study_row.py), so it is resolved, trained and
embedded as the rows of `unseen study --mini`. built_in.yaml defines the images and the lengths, and lists the
claims that cannot be put to this setting.
"""

import shutil
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from pydantic import Field

from pipeline.claims.arm import Record, average, evaluated, read_or_compute
from pipeline.claims.claim import OF_CLASSES, Claims
from pipeline.claims.material import RECORDS
from pipeline.claims.results import Floor, Results
from pipeline.claims.run import arms_of, compared, require_seeds
from pipeline.config.blocks import Scalar
from pipeline.config.dataset import IngestSettings, PartsSource
from pipeline.config.document import Document, Params
from pipeline.config.inputs import digest
from pipeline.config.methods import Recipe
from pipeline.config.resolve import resolve
from pipeline.config.stages import TrainSettings
from pipeline.config.strict import Strict
from pipeline.config.study_row import StudyRow
from pipeline.data.shards import Shards
from pipeline.export.features import Network, load_network
from pipeline.ingest.ingest import ingest
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import write_json
from pipeline.runtime.progress import Progress
from pipeline.training.embed import RowEmbedder
from pipeline.training.job import job_of
from pipeline.training.loop import train
from pipeline.training.worker import Worker

PATH = Path(__file__).with_name("built_in.yaml")
COMMITTED = Path(__file__).with_name("built_in.json")
RESULTS = "built_in.json"  # in the output directory
VERSION = 1  # of the numbers: change it if a change of code changes them
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
    return Document(path, f"pipeline/claims/{path.name}" if path == PATH else None)


def recipe_of(claims: Claims, setting: BuiltIn, arm: str) -> Recipe:
    """The recipe of the whole network of an arm. Raises UserError for a field that the recipe does not
    have."""
    fields = setting.recipe | setting.arms.get(arm, {})
    of_arm = {field: value for field, value in claims.arms[arm].items() if field != "like"}
    like = str(claims.arms[arm]["like"])
    unreplaced = (*fields, *_MEASURED)  # by the small set
    params = Params(text="")
    params.rows = {
        "arm": StudyRow(_document(), f"arms.{arm}", like, of_arm | fields, "published", unreplaced)
    }
    return resolve(params, setting.source.kind, "arm")


def definition(claims: Claims, setting: BuiltIn, name: str) -> str:
    """A digest of what determines the result of a claim: the images, the recipes of its arms, its metric."""
    claim = claims.claims[name]
    recipes = [recipe_of(claims, setting, arm).model_dump(mode="json") for arm in arms_of(claim)]
    source = setting.source.model_dump(mode="json")
    return digest([source, recipes, claim.metric, claim.expects, claim.margin])


def run_built_in(
    claims: Claims, setting: BuiltIn, names: Sequence[str], output: Path, seeds: Sequence[int]
) -> Results:
    """The results of claims. Writes OUTPUT/built_in.json after each claim, and keeps a record of each
    training, with which a killed run continues. A killed training continues too.

    Raises UserError for fewer than two seeds, and if no claim can be put to this setting.
    """
    require_seeds(seeds)
    chosen = {name: claims.claims[name] for name in names if name not in setting.excluded}
    if not chosen:
        raise UserError(
            f"{names[0]} is not compared on the built-in set: {setting.excluded[names[0]]}",
            "Compute it on photos: --photos.",
        )
    torch.set_num_threads(1)  # sums of several threads round differently
    shards = _shards(output, setting.source)
    recipes = {
        arm: recipe_of(claims, setting, arm)
        for arm in dict.fromkeys(arm for claim in chosen.values() for arm in arms_of(claim))
    }
    networks = {arm: recipe.backbone.name for arm, recipe in recipes.items()}
    first_arms = {network: arm for arm, network in reversed(networks.items())}
    split = setting.source.kind
    test = shards.rows("test")
    results = Results(
        data=split,
        photos=len(shards),
        classes=len(shards.class_names),
        test_classes={split: len(np.unique(shards.labels[test]))},
        at_most=setting.source.images_per_class,
        seeds=len(seeds),
        cpu_seconds=0,
        floors=[],
        claims={},
    )
    records: dict[tuple[str, str, str, int], Record] = {}
    with Progress("claims", len(recipes) * len(seeds), "trainings") as progress:
        for network, arm in sorted(first_arms.items()):
            values = [_record(output, shards, arm, recipes[arm], seed, "features") for seed in seeds]
            numbers = {m: round(mean(average(each, m) for each in values), 5) for m in OF_CLASSES}
            results.floors.append(Floor(network=network, split=split, **numbers))
        for name, claim in chosen.items():
            for arm in arms_of(claim):
                for seed in seeds:
                    key = networks[arm], arm, split, seed
                    if key not in records:
                        records[key] = _record(output, shards, arm, recipes[arm], seed)
                        progress.advance(1, arm)
            places = [(networks[claim.first], split)]
            digest_of_claim = definition(claims, setting, name)
            results.claims[name] = compared(claim, digest_of_claim, places, records, seeds)
            seconds = sum(each.cpu_seconds for each in records.values())
            results = results.model_copy(update={"cpu_seconds": round(seconds)})
            write_json(output / RESULTS, results.model_dump(mode="json"))
    return results


def _shards(output: Path, source: PartsSource) -> Shards:
    """The shards of the images, which the first run generates."""
    root = output / "built_in" / digest(source.model_dump(mode="json"))
    directory = root / "data/shards" / source.kind
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        ingest(source, IngestSettings(), directory, source.kind, 1)
    return Shards(directory)


def _record(
    output: Path, shards: Shards, arm: str, recipe: Recipe, seed: int, network: Network = "last"
) -> Record:
    """The record of a network of an arm: `last`, or `features`, for which it is not trained."""
    if network == "features":
        training = recipe.training.model_copy(update={"iterations": 0})
        recipe = recipe.model_copy(update={"training": training})
    settings = {
        "version": VERSION,
        "recipe": recipe.model_dump(mode="json"),
        "images": shards.fingerprint,
        "seed": seed,
        "network": network,
    }

    def compute() -> Record:
        begin, cpu = time.process_time(), torch.device("cpu")
        root, machine = shards.directory.parents[2], TrainSettings(loader_threads=1)
        job = job_of(shards.directory.name, arm, seed, recipe, root, machine, str(VERSION))
        last = train(job, 0, 1, cpu)
        model = root / "data/models" / job.name
        method = load_network(model, network).method
        test = shards.rows("test")
        vectors = RowEmbedder(method, shards, recipe, Worker(0, 1, cpu)).embed(test).numpy()
        labels = shards.labels[test].astype(np.int64)
        noise = {name: float(last[name]) for name in ("direction_covariance",) if name in last}
        record = evaluated(settings, vectors, labels, shards.class_names, noise, begin)
        shutil.rmtree(model)
        return record

    return read_or_compute(output / RECORDS, settings, compute)[0]
