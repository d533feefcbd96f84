"""Runs of whole networks on the generated images of built_in.yaml: a row is an arm of the claims."""

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unseen.config.inputs import digest
from unseen.config.stages import TrainSettings
from unseen.data.ingest.ingest import ingest
from unseen.data.ingest.settings import IngestSettings, PartsSource
from unseen.data.shards import Shards
from unseen.evaluation.class_means import record_of
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.methods.settings import Recipe
from unseen.training.export.features import load_network
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


class WholeRunner:
    """Runs of whole networks (experiments/experiment.py). A place is `network/data set`; the row FLOOR is the
    features of the untrained network, those of the first arm that has it."""

    def __init__(self, shards: Shards, recipes: Mapping[str, Recipe]) -> None:
        """recipes: by arm."""
        self._shards, self._recipes = shards, recipes

    def recipe(self, run: Run) -> Recipe:
        if run.row != FLOOR:
            return self._recipes[run.row]
        recipe = self._recipes[self._arm(run)]
        training = recipe.training.model_copy(update={"iterations": 0})
        return recipe.model_copy(update={"training": training})

    def settings(self, run: Run) -> dict[str, Any]:
        return {
            "version": VERSION,
            "recipe": self.recipe(run).model_dump(mode="json"),
            "images": self._shards.fingerprint,
            "seed": run.seed,
            "network": "features" if run.row == FLOOR else "last",
        }

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        torch.set_num_threads(1)  # sums of several threads round differently
        yield from ((run, self._record(run)) for run in runs)

    def _arm(self, run: Run) -> str:
        network, _ = run.place.split("/")
        return next(arm for arm, recipe in self._recipes.items() if recipe.backbone.name == network)

    def _record(self, run: Run) -> Record:
        """Trains an arm, evaluates it on the test images and deletes the model."""
        begin, cpu = time.process_time(), torch.device("cpu")
        shards, recipe, machine = self._shards, self.recipe(run), TrainSettings(loader_threads=1)
        root = shards.directory.parents[2]
        arm = self._arm(run) if run.row == FLOOR else run.row
        job = job_of(shards.directory.name, arm, run.seed, recipe, root, machine, str(VERSION))
        last = train(job, 0, 1, cpu)
        model = root / "data/models" / job.name
        method = load_network(model, "features" if run.row == FLOOR else "last").method
        test = shards.rows("test")
        vectors = RowEmbedder(method, shards, recipe, Worker(0, 1, cpu)).embed(test).numpy()
        labels = shards.labels[test].astype(np.int64)
        noise = {name: float(last[name]) for name in ("direction_covariance",) if name in last}
        record = record_of(self.settings(run), vectors, labels, shards.class_names, noise, begin)
        shutil.rmtree(model)
        return record
