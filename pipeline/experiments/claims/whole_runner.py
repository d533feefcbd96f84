"""Runs of whole networks on photos: a row is an arm of the claims."""

import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from unseen.config.inputs import digest
from unseen.config.stages import TrainSettings
from unseen.data.heif import readable
from unseen.data.ingest.collection import Collection as Listing
from unseen.data.ingest.collection import Picture
from unseen.data.ingest.ingest import write
from unseen.data.ingest.settings import IngestSettings
from unseen.data.shards import Shards
from unseen.evaluation.class_means import record_of
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.frozen.head_runner import Photos
from unseen.methods.settings import Recipe
from unseen.runtime.digest import sha256_of
from unseen.training.export.features import load_network
from unseen.training.job import job_of
from unseen.training.loop import train
from unseen.training.row_embedder import RowEmbedder
from unseen.training.worker import Worker

VERSION = 1  # of the numbers: change it if a change of code changes them


def photo_shards(
    output: Path, name: str, folder: Path, photos: Photos, classes: Collection[str], test: Collection[str]
) -> Shards:
    """The shards of the photos of some classes with these test classes, which the first run writes."""
    rows = [
        (path.relative_to(folder).as_posix(), sha256, label)
        for path, sha256, label in zip(*photos, strict=True)
        if label in classes
    ]
    directory = output / "whole" / digest([rows, sorted(test)]) / "data/shards" / name
    if not directory.is_dir():
        directory.parent.mkdir(parents=True, exist_ok=True)
        pictures = [Picture(path, label, "test" if label in test else "train") for path, _, label in rows]
        listed = Listing(str(folder), pictures, partial(_read, folder))
        write(listed, listed.in_order(), IngestSettings(), directory, name, 1)
    return Shards(directory)


def _read(folder: Path, name: str) -> bytes:
    return readable((folder / name).read_bytes())


class _Task(NamedTuple):
    """A run with all that computes its record, for another process."""

    run: Run
    settings: dict[str, Any]
    recipe: Recipe
    shards: Path


class WholeRunner:
    """Runs of whole networks (experiments/experiment.py). A place is `network/split`; the row FLOOR is the
    features that its recipe reads of the untrained network."""

    def __init__(
        self,
        shards: Mapping[str, Shards],
        recipes: Mapping[tuple[str, str], Recipe],
        pool: Executor | None = None,
    ) -> None:
        """shards: by split. recipes: by arm or FLOOR, and network. pool: processes that train; None: this one
        does."""
        self._shards, self._recipes, self._pool = shards, recipes, pool

    def recipe(self, run: Run) -> Recipe:
        network, _ = run.place.split("/")
        return self._recipes[run.row, network]

    def settings(self, run: Run) -> dict[str, Any]:
        _, split = run.place.split("/")
        recipe = self.recipe(run).model_dump(mode="json")
        if (checkpoint := recipe["backbone"]["checkpoint"]) is not None:
            recipe["backbone"]["checkpoint"] = sha256_of(Path(checkpoint))
        return {
            "version": VERSION,
            "recipe": recipe,
            "images": self._shards[split].fingerprint,
            "seed": run.seed,
            "network": "features" if run.row == FLOOR else "last",
        }

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        tasks = [
            _Task(run, self.settings(run), self.recipe(run), self._shards[run.place.split("/")[1]].directory)
            for run in runs
        ]
        yield from (map if self._pool is None else self._pool.map)(_computed, tasks)


def _computed(task: _Task) -> tuple[Run, Record]:
    """Trains an arm, evaluates it on the test images and deletes the model."""
    torch.set_num_threads(1)  # sums of several threads round differently
    begin, cpu = time.process_time(), torch.device("cpu")
    run, settings, recipe, directory = task
    network, split = run.place.split("/")
    root, shards = directory.parents[2], Shards(directory)
    machine = TrainSettings(loader_threads=1)
    job = job_of(split, f"{network}-{run.row}", run.seed, recipe, root, machine, str(VERSION))
    last = train(job, 0, 1, cpu)
    model = root / "data/models" / job.name
    method = load_network(model, "features" if run.row == FLOOR else "last").method
    test = shards.rows("test")
    vectors = RowEmbedder(method, shards, recipe, Worker(0, 1, cpu)).embed(test).numpy()
    labels = shards.labels[test].astype(np.int64)
    noise = {name: float(last[name]) for name in ("direction_covariance",) if name in last}
    record = record_of(settings, vectors, labels, shards.class_names, noise, begin)
    shutil.rmtree(model)
    return run, record
