"""Runs of heads on frozen networks: a row is a head, a place `network/split` a network with photos whose
classes are divided into training and test classes.

The row FLOOR is the features of the network without a head: the mean of the last map, or the class token of a
transformer that has one.
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int64

from unseen.evaluation.class_means import record_of
from unseen.evaluation.record import FLOOR, Record, Run
from unseen.frozen.head import head
from unseen.frozen.head_training import TrainedHead, embedded, on_cached_maps, train
from unseen.frozen.labels import FOLDERS, labelled
from unseen.frozen.maps import Maps, maps_of, trunk
from unseen.frozen.network import Network
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.poolings.projected_gsp import ProjectedGsp

VERSION = 1  # of the numbers: change it if a change of code changes them
STAGES = (-2, -1)  # the maps that are cached: Multi-Head reads both
MAPS, MODELS = "maps", "networks"  # in the output directory
REPETITIONS = 30  # of a backward pass that is timed
Head = tuple[str, dict[str, Any]]  # a published method, and its changes by dotted field


class Photos(NamedTuple):
    """Labelled photos, those of a class in the order of their sha256."""

    paths: list[Path]
    sha256: list[str]
    labels: list[str]


def photos_of(folder: Path, at_most: int) -> Photos:
    """Different photos of a folder of classes, at most `at_most` of each. Raises UserError as `labelled`
    does."""
    pictures, labels = labelled(folder, FOLDERS)
    different = dict(zip(zip(labels, pictures.sha256, strict=True), pictures.paths, strict=True))
    by_class = groupby(sorted(different.items()), key=lambda photo: photo[0][0])
    rows = [photo for _, of_class in by_class for photo in islice(of_class, at_most)]
    labels, digests = [label for (label, _), _ in rows], [digest for (_, digest), _ in rows]
    return Photos([folder / path for _, path in rows], digests, labels)


class HeadRunner:
    """Runs of heads (experiments/experiment.py). Maps and networks are kept in `output`."""

    def __init__(
        self,
        heads: Mapping[str, Head],
        networks: Mapping[str, Network],
        photos: Photos,
        tests: Mapping[str, frozenset[str]],
        output: Path,
    ) -> None:
        """tests: the test classes of each split; all others are training classes."""
        self._heads, self._photos, self._tests, self._output = heads, photos, tests, output
        content = sorted(zip(photos.labels, photos.sha256, strict=True))
        self._digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        self._names, labels = np.unique(photos.labels, return_inverse=True)
        self._labels = labels.astype(np.int64)
        self._trunks = {
            name: trunk(network, output / MODELS / name, STAGES) for name, network in networks.items()
        }

    def settings(self, run: Run) -> dict[str, Any]:
        network, split = run.place.split("/")
        method, changes = self._head(run)
        return {
            "version": VERSION,
            "method": method,
            "changes": changes,
            "network": self._trunks[network].digest,
            "photos": self._digest,
            "test": sorted(self._tests[split]),
            "seed": run.seed,
        }

    def recipe(self, run: Run) -> Recipe:
        network, _ = run.place.split("/")
        method, changes = self._head(run)
        return head(method, self._trunks[network], changes).recipe()

    def compute(self, runs: Sequence[Run]) -> Iterator[tuple[Run, Record]]:
        """Raises UserError for a photo that cannot be read, and for too few training classes or photos."""
        torch.set_num_threads(1)  # sums of several threads round differently
        for network, frozen in self._trunks.items():
            of_network = [run for run in runs if run.place.startswith(f"{network}/")]
            if of_network:
                label = f"maps of {network}"
                maps = maps_of(self._photos.paths, self._photos.sha256, frozen, self._output / MAPS, label)
                yield from ((run, self._record(run, maps)) for run in of_network)

    def _head(self, run: Run) -> Head:
        if run.row != FLOOR:
            return self._heads[run.row]
        network, _ = run.place.split("/")
        pooling = "average" if self._trunks[network].layout.cls_channels is None else "cls"
        return "ms", {"dim": None, "pooling.name": pooling, "training.iterations": 0}

    def _record(self, run: Run, maps: Maps) -> Record:
        begin, recipe = time.process_time(), self.recipe(run)
        _, split = run.place.split("/")
        is_test = np.isin(self._names[self._labels], sorted(self._tests[split]))
        training, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
        classes, numbered = np.unique(self._labels[training], return_inverse=True)
        if steps := recipe.training.iterations:
            (trained,) = train(recipe, maps, training, numbered.astype(np.int64), (steps,), run.seed)
        else:
            untrained = on_cached_maps(recipe, maps.layout, len(classes), len(training), run.seed)
            trained = TrainedHead(untrained.eval(), 0, ())
        vectors = embedded(trained.method, maps, test)
        numbers = {}
        if recipe.training.gradient_noise is not None and trained.numbers:
            noise = [step.noise["direction_covariance"] for step in trained.numbers]
            numbers["direction_covariance"] = float(np.mean(noise))
        if getattr(getattr(recipe, "pooling", None), "solver", "newton") == "iteration":
            numbers["log_backward_seconds"] = float(np.log(_backward_seconds(trained.method, maps, training)))
        names = self._names.tolist()
        return record_of(self.settings(run), vectors, self._labels[test], names, numbers, begin)


def _backward_seconds(method: Method, maps: Maps, photos: Int64[np.ndarray, "N"]) -> float:
    """CPU seconds of the backward pass of the transport of a batch of 32 images, the median of
    REPETITIONS."""
    pooling = method.cpu().get_submodule("head.pooling")
    assert isinstance(pooling, ProjectedGsp)
    with torch.no_grad():
        features = method.backbone(maps.rows(photos[:32])).maps[-1]
        transformed = pooling.transform(features)
    seconds = []
    for _ in range(REPETITIONS):
        leaf = transformed.detach().clone().requires_grad_()
        pooled, attributes = pooling.gsp(leaf)
        loss = pooled.square().sum() + attributes.square().sum()
        begin = time.thread_time()
        loss.backward()
        seconds.append(time.thread_time() - begin)
    method.zero_grad(set_to_none=True)
    return median(seconds)
