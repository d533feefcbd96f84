"""One arm of a claim: a head trained on one network, split and seed, and its numbers on unseen classes.

A record is a JSON file named by a digest of its settings, so that a claim that is computed again, and another
claim with the same arm, use it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from jaxtyping import Float32, Int64

from unseen.evaluation.analysis.density import embedding_density
from unseen.evaluation.analysis.spectrum import spectral_decay, spectrum
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.record import Record
from unseen.frozen.head import head
from unseen.frozen.head_training import TrainedHead, embedded, on_cached_maps, train
from unseen.frozen.maps import Maps, Trunk
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.poolings.projected_gsp import ProjectedGsp
from unseen.runtime.files import write_json

VERSION = 1  # of the numbers: change it if a change of code changes them
REPETITIONS = 30  # of a backward pass that is timed


@dataclass(frozen=True)
class Material:
    """A network with the maps of all photos, and a split of their classes."""

    trunk: Trunk
    maps: Maps
    names: tuple[str, ...]  # of the classes, in ascending order
    labels: Int64[np.ndarray, "N"]  # positions in `names`
    photos: str  # digest of photos and labels
    test: frozenset[str]  # test classes; all others are training classes


def record(
    directory: Path, method: str, changes: dict[str, Any], material: Material, seed: int
) -> tuple[Record, bool]:
    """The record of an arm, and whether it was computed by this call."""
    settings = {
        "version": VERSION,
        "method": method,
        "changes": changes,
        "network": material.trunk.digest,
        "photos": material.photos,
        "test": sorted(material.test),
        "seed": seed,
    }
    recipe = head(method, material.trunk, changes).recipe()
    return read_or_compute(directory, settings, lambda: _computed(settings, recipe, material, seed))


def read_or_compute(
    directory: Path, settings: dict[str, Any], compute: Callable[[], Record]
) -> tuple[Record, bool]:
    """The record of these settings in a directory, which `compute` makes if it is missing, and whether it
    did."""
    if (existing := read_record(directory, settings)) is not None:
        return existing, False
    result = compute()
    directory.mkdir(parents=True, exist_ok=True)
    write_json(_path_of(directory, settings), result.model_dump(mode="json"))
    return result, True


def read_record(directory: Path, settings: dict[str, Any]) -> Record | None:
    """The record of these settings in a directory; None if it is missing."""
    path = _path_of(directory, settings)
    return Record.parse(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _path_of(directory: Path, settings: dict[str, Any]) -> Path:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
    return directory / f"{digest[:24]}.json"


def floor(directory: Path, material: Material) -> Record:
    """The record of the features of the network without a head: the mean of the last map, or the class token
    of a transformer that has one."""
    pooling = "average" if material.maps.layout.cls_channels is None else "cls"
    changes = {"dim": None, "pooling.name": pooling, "training.iterations": 0}
    return record(directory, "ms", changes, material, 0)[0]


def average(values: Record, metric: str) -> float:
    """The mean over the test images of a metric of OF_CLASSES."""
    of_class = values.classes[metric]
    return sum(of_class[name] * images for name, images in values.images.items()) / sum(
        values.images.values()
    )


def _computed(settings: dict[str, Any], recipe: Recipe, material: Material, seed: int) -> Record:
    begin = time.process_time()
    is_test = np.isin(material.labels, [material.names.index(name) for name in sorted(material.test)])
    training, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    numbered = np.unique(material.labels[training], return_inverse=True)[1].astype(np.int64)
    if steps := recipe.training.iterations:
        (trained,) = train(recipe, material.maps, training, numbered, (steps,), seed)
    else:
        classes = int(numbered.max()) + 1
        untrained = on_cached_maps(recipe, material.maps.layout, classes, len(training), seed)
        trained = TrainedHead(untrained.eval(), 0, ())
    vectors, labels = embedded(trained.method, material.maps, test), material.labels[test]
    numbers = {}
    if recipe.training.gradient_noise is not None and trained.numbers:
        numbers["direction_covariance"] = float(
            np.mean([step.noise["direction_covariance"] for step in trained.numbers])
        )
    if getattr(getattr(recipe, "pooling", None), "solver", "newton") == "iteration":
        numbers["log_backward_seconds"] = float(
            np.log(_backward_seconds(trained.method, material.maps, training))
        )
    return evaluated(settings, vectors, labels, material.names, numbers, begin)


def evaluated(
    settings: dict[str, Any],
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    names: Sequence[str],
    of_training: Mapping[str, float],
    begin: float,
) -> Record:
    """The record of embedded test images: each is a query against all others. names: of the classes, by
    label. of_training: numbers that the embeddings do not determine. begin: of the training, in seconds of
    time.process_time."""
    rows = Rows(np.arange(len(labels), dtype=np.int64), labels, vectors)
    values = per_query(rows, rows, (1,))
    present = [int(label) for label in np.unique(labels) if (labels == label).sum() > 1]
    of_images = {"map_at_r": values.ap_at_r, "recall_at_1": values.recall[:, 0]}
    numbers = {
        "embedding_density": embedding_density(vectors, labels).ratio,
        "spectral_decay": spectral_decay(spectrum(vectors).values),
        **of_training,
    }
    return Record(
        settings=settings,
        images={names[label]: int((labels == label).sum()) for label in present},
        classes={
            metric: {names[label]: round(float(each[labels == label].mean()), 6) for label in present}
            for metric, each in of_images.items()
        },
        training={metric: round(float(value), 6) for metric, value in numbers.items()},
        cpu_seconds=round(time.process_time() - begin, 2),
    )


def _backward_seconds(method: Method, maps: Maps, photos: Int64[np.ndarray, "N"]) -> float:
    """CPU seconds of the backward pass of the transport of a batch of 32 images, the median of
    REPETITIONS."""
    pooling = method.get_submodule("head.pooling")
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
