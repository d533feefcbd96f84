"""The trainings of whole networks on the generated images of built_in.yaml, and their records.

A record is a JSON file in OUTPUT/records, named by a digest of the recipe, the images and the seed. A
training whose record exists is not repeated.
"""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen.config.inputs import digest
from unseen.config.stages import TrainSettings
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, PartsSource
from unseen.data.shards import Shards
from unseen.evaluation.record import Record
from unseen.experiments.claims.arm import evaluated, read_or_compute, read_record
from unseen.experiments.claims.material import RECORDS
from unseen.methods.settings import Recipe
from unseen.training.export.features import Network, load_network
from unseen.training.job import job_of
from unseen.training.loop import train
from unseen.training.row_embedder import RowEmbedder
from unseen.training.worker import Worker

VERSION = 1  # of the numbers: change it if a change of code changes them


def generated_shards(output: Path, source: PartsSource) -> Shards:
    """The shards of the images, which the first run generates."""
    root = output / "built_in" / digest(source.model_dump(mode="json"))
    directory = root / "data/shards" / source.kind
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        ingest(source, IngestSettings(), directory, source.kind, 1)
    return Shards(directory)


@dataclass(frozen=True)
class Trainings:
    """The trainings of the arms with all seeds."""

    output: Path
    shards: Shards
    recipes: dict[str, Recipe]  # by arm
    seeds: tuple[int, ...]
    # of the trainings so far: by network, arm, split and seed
    records: dict[tuple[str, str, str, int], Record] = field(default_factory=dict)

    @property
    def split(self) -> str:
        """The set has one split, which has its name."""
        return self.shards.directory.name

    @property
    def cpu_seconds(self) -> int:
        """The sum over the records so far."""
        return round(sum(record.cpu_seconds for record in self.records.values()))

    def has_record(self, arm: str, seed: int) -> bool:
        return self._key(arm, seed) in self.records

    def read(self) -> int:
        """Adds the records that OUTPUT has, and returns their number."""
        for arm, recipe in self.recipes.items():
            for seed in self.seeds:
                record = read_record(self.output / RECORDS, self._settings(recipe, seed, "last"))
                if record is not None:
                    self.records[self._key(arm, seed)] = record
        return len(self.records)

    def read_or_train(self, arm: str, seed: int) -> None:
        """Adds the record of a training, which is trained if OUTPUT lacks its record."""
        self.records[self._key(arm, seed)] = self._record(arm, self.recipes[arm], seed, "last")

    def features(self, arm: str, seed: int) -> Record:
        """The record of the features of the untrained network of an arm."""
        recipe = self.recipes[arm]
        training = recipe.training.model_copy(update={"iterations": 0})
        return self._record(arm, recipe.model_copy(update={"training": training}), seed, "features")

    def _key(self, arm: str, seed: int) -> tuple[str, str, str, int]:
        return self.recipes[arm].backbone.name, arm, self.split, seed

    def _settings(self, recipe: Recipe, seed: int, network: Network) -> dict[str, Any]:
        return {
            "version": VERSION,
            "recipe": recipe.model_dump(mode="json"),
            "images": self.shards.fingerprint,
            "seed": seed,
            "network": network,
        }

    def _record(self, arm: str, recipe: Recipe, seed: int, network: Network) -> Record:
        settings = self._settings(recipe, seed, network)

        def compute() -> Record:
            return self._trained(settings, arm, recipe, seed, network)

        return read_or_compute(self.output / RECORDS, settings, compute)[0]

    def _trained(
        self, settings: dict[str, Any], arm: str, recipe: Recipe, seed: int, network: Network
    ) -> Record:
        """Trains an arm, evaluates it on the test images and deletes the model."""
        begin, cpu = time.process_time(), torch.device("cpu")
        shards, machine = self.shards, TrainSettings(loader_threads=1)
        root = shards.directory.parents[2]
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
