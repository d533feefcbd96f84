"""Runs of the rungs that are trained (experiments/experiment.py): a row is a rung, a place a part of the
classes.

A run trains once, for the longest of its lengths. Its record has a metric for each of them. The vectors are
beside the records, as OUTPUT/vectors/<digest>.<steps>.parquet: the rules of products.py read them.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.record import Record, Run
from unseen.experiments.experiment import digest_of
from unseen.frozen.store import VECTORS, read_or_remove
from unseen.frozen.trained import Task, Trained, Trainer
from unseen.methods.settings import Recipe

VERSION = 1  # of the numbers: change it if a change of code changes them
RECORDS, OF_RUNS = "records", "vectors"  # in the output directory


class Part(NamedTuple):
    """A place: the photos that train, and those that search among themselves. others: photos that are
    embedded too."""

    training: Int64[np.ndarray, "N"]
    queries: Int64[np.ndarray, "Q"]
    others: Int64[np.ndarray, "_"]


class RungRunner:
    """Runs of `trainers` with their lengths. sha256, labels: of all photos."""

    def __init__(
        self,
        trainers: Sequence[Trainer],
        lengths: Mapping[str, Sequence[int]],
        parts: Mapping[str, Part],
        photos: tuple[Sequence[str], Int64[np.ndarray, "N"]],
        output: Path,
    ) -> None:
        self._trainers = {trainer.name: trainer for trainer in trainers}
        self._lengths, self._parts, self._output = lengths, parts, output
        self._sha256, self._labels = np.asarray(photos[0]), photos[1]
        self._last: dict[str, tuple[Run, Trained]] = {}  # of each rung: parameters take memory

    def settings(self, run: Run) -> dict[str, Any]:
        part = self._parts[run.place]
        return {
            "version": VERSION,
            "rung": run.row,
            "inputs": self._trainers[run.row].digest,
            "recipe": self.recipe(run).model_dump(mode="json"),
            "lengths": [*self._lengths[run.row]],
            "training": self._digest(part.training),
            "searched": [self._digest(part.queries), self._digest(part.others)],
            "seed": run.seed,
        }

    def recipe(self, run: Run) -> Recipe:
        photos = len(self._parts[run.place].training)
        return self._trainers[run.row].recipe(photos, self._lengths[run.row][-1])

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        for run in runs:
            begin = time.process_time()
            queries = self._labels[self._parts[run.place].queries]
            metrics = {}
            for trained in self._train(run):
                values = precision(trained.vectors[: len(queries)], queries)
                metrics[after(trained.steps)], images = class_means(values, queries)
            record = Record(
                settings=self.settings(run),
                images=images,
                classes=metrics,
                training={"dimensions": float(trained.vectors.shape[1])},
                cpu_seconds=time.process_time() - begin,
            )
            yield run, record

    def vectors(self, run: Run, record: Record, steps: int) -> Float32[np.ndarray, "_ D"]:
        """Those of the queries, then of the others, after a number of steps. A file that is missing or
        damaged is computed again."""
        path, width = self._file(record.settings, steps), int(record.training["dimensions"])
        if not path.is_file() or read_or_remove(path, lambda path: VECTORS.digests(path, width)) is None:
            self._train(run)
        part = self._parts[run.place]
        return np.asarray(VECTORS.rows(path)(np.arange(len(part.queries) + len(part.others))))

    def trained(self, run: Run) -> Trained:
        """What a run trained, after its last length; trained again unless it is the last one of its rung."""
        last, trained = self._last.get(run.row, (None, None))
        return trained if trained is not None and last == run else self._train(run)[-1]

    def _train(self, run: Run) -> list[Trained]:
        part, lengths = self._parts[run.place], self._lengths[run.row]
        searched = np.concatenate([part.queries, part.others])
        trained = self._trainers[run.row].train(task(part.training, self._labels, lengths, searched))
        settings = self.settings(run)
        for each in trained:
            VECTORS.write(self._file(settings, each.steps), self._sha256[searched].tolist(), each.vectors)
        self._last[run.row] = run, trained[-1]
        return trained

    def _file(self, settings: dict[str, Any], steps: int) -> Path:
        return self._output / OF_RUNS / f"{digest_of(settings)}.{steps}.parquet"

    def _digest(self, photos: Int64[np.ndarray, "N"]) -> str:
        """Of the photos, their order and which of them have one label."""
        numbers = np.unique(self._labels[photos], return_inverse=True)[1]
        content = json.dumps([self._sha256[photos].tolist(), numbers.tolist()])
        return hashlib.sha256(content.encode()).hexdigest()


def after(steps: int) -> str:
    """The metric of a length."""
    return f"map_at_r after {steps} steps"


def task(
    rows: Int64[np.ndarray, "_"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int],
    searched: Int64[np.ndarray, "_"],
) -> Task:
    """The training on the photos `rows`, whose classes are numbered from 0."""
    numbered = np.unique(labels[rows], return_inverse=True)[1].astype(np.int64)
    return Task(rows, numbered, lengths, searched)


def precision(
    vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]
) -> Float64[np.ndarray, "N"]:
    """AP@R of every image among the others; NaN for the only image of a class."""
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, vectors)
    return per_query(rows, rows, (1,), counter=tile_counter()).ap_at_r


def class_means(
    ap_at_r: Float64[np.ndarray, "Q"], labels: Int64[np.ndarray, "Q"]
) -> tuple[dict[str, float], dict[str, int]]:
    """The means of Q queries by class, and the images of each; NaN: the only image of a class."""
    scored = ~np.isnan(ap_at_r)
    classes, member = np.unique(labels[scored], return_inverse=True)
    images, names = np.bincount(member), [f"{label:09d}" for label in classes]
    means = np.bincount(member, ap_at_r[scored]) / images
    return dict(zip(names, means.tolist(), strict=True)), dict(zip(names, images.tolist(), strict=True))
