"""The ladder: every rung measured on the same unseen classes, and the rung that held-out classes choose.

Training classes are divided into folds. Each fold is held out once: its images search among themselves, with
the published features, and with a linear map that the other folds trained. The values of all folds together
choose

    the size         the frozen rung with the largest MAP@R
    the length       the number of steps of `linear` at this size with the largest MAP@R
    the rung         `linear` if it is ahead of `frozen` at this size (95% interval over classes), else
    `frozen`

Then `linear` is trained on all training classes for the chosen length. The test classes choose nothing.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64

from pipeline.catalog.labels import FOLDERS, labels_of
from pipeline.catalog.pictures import Listed, listed
from pipeline.evaluation.evaluate import evaluate
from pipeline.evaluation.external import Metrics, Settings
from pipeline.evaluation.metrics import Rows, per_query
from pipeline.evaluation.sides import Sides
from pipeline.evaluation.statistics.comparison import Comparison, compare
from pipeline.evaluation.tables import SELECTED
from pipeline.ladder.features import features
from pipeline.ladder.linear import LENGTHS, mapped, train
from pipeline.ladder.split import Split, split
from pipeline.methods.pretrained import Network, add_linear, write_network
from pipeline.runtime.errors import UserError

SETTINGS = Settings(recall_at=(1,))
FEATURES, MODEL = "features", "model"  # in the output directory


@dataclass(frozen=True)
class Plan:
    """What the ladder compares. sizes: pixels per side of the frozen rungs. group_of: the group of a class
    (split.py). loss: of linear.py. ship: train the written linear map on all labelled classes."""

    network: Network
    sizes: tuple[int, ...]
    test_share: float = 0.5
    folds: int = 4
    seed: int = 0
    group_of: Mapping[str, str] | None = None
    loss: str = "nsoftmax"
    ship: bool = False


class Rung(NamedTuple):
    """A rung and its accuracy."""

    name: str
    size: int
    steps: int  # of the linear map; 0: frozen
    validation: float  # MAP@R on held-out training classes
    test: Metrics  # on the test classes
    seconds: float  # of CPU: features, and for linear also its trainings
    difference: Comparison | None  # of MAP@R from the frozen rung of the same size, on the test classes


class Result(NamedTuple):
    """All rungs, the chosen one, and the comparison that chose it."""

    rungs: list[Rung]
    chosen: Rung
    validation: Comparison  # of MAP@R, linear - frozen at the best size, on held-out training classes
    split: Split


class _Measured(NamedTuple):
    """One size: its features, the values of the frozen rung, and the CPU seconds of the features."""

    vectors: Float32[np.ndarray, "N D"]
    held_out: Float64[np.ndarray, "N"]  # AP@R of training images within their fold; NaN for test images
    seconds: float


def ladder(photos: Path, output: Path, plan: Plan, labels: str = FOLDERS) -> Result:
    """Measures all rungs on the photos of a folder and writes the chosen model to `output`/model.

    labels: folders, or the path of a CSV (catalog/labels.py). Features are kept in `output`/features. Raises
    UserError if there are too few classes (split.py), a picture is damaged, no class has two pictures, and as
    `Embedder` does.
    """
    pictures = listed(photos)
    if pictures.damaged:
        name, reason = next(iter(pictures.damaged.items()))
        raise UserError(f"{photos / name} cannot be read: {reason}.", "Repair or remove it.")
    pictures, names = _labelled(pictures, labels)
    parts = split(names.tolist(), plan.test_share, plan.folds, plan.seed, plan.group_of)
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    sides = [np.flatnonzero(np.isin(names, sorted(fold))) for fold in parts.folds]
    test = np.flatnonzero(np.isin(names, sorted(parts.test)))
    training = np.sort(np.concatenate(sides))
    if not max(np.bincount(numbers[test])) > 1:
        raise UserError("No test class has two pictures.", "Add pictures of the classes, or change --seed.")

    measured = {}
    for size in plan.sizes:
        network = replace(plan.network, size=size)
        measured[size] = _measured(photos, pictures, output, network, numbers, sides)
    best = max(plan.sizes, key=lambda size: _mean(measured[size].held_out))
    vectors, frozen_values, seconds = measured[best]

    begin = time.process_time()
    of_length = _held_out_by_length(vectors, numbers, sides, training, plan)
    length = max(of_length, key=lambda steps: _mean(of_length[steps]))
    validation = _compared(frozen_values[training], of_length[length][training], numbers[training])
    weight = _trained(vectors, numbers, training, length, plan)
    linear_seconds = seconds + time.process_time() - begin

    rungs = []
    values = {}
    for size, of_size in measured.items():
        metrics, values[size] = _tested(of_size.vectors, numbers, test)
        rungs.append(Rung("frozen", size, 0, _mean(of_size.held_out), metrics, of_size.seconds, None))
    metrics, linear_values = _tested(mapped(vectors, weight), numbers, test)
    difference = _compared(values[best], linear_values, numbers[test])
    rungs.append(Rung("linear", best, length, _mean(of_length[length]), metrics, linear_seconds, difference))
    is_ahead = validation.low > 0
    chosen = (
        rungs[-1] if is_ahead else next(rung for rung in rungs if (rung.name, rung.size) == ("frozen", best))
    )

    model = output / MODEL
    shutil.rmtree(model, ignore_errors=True)
    write_network(replace(plan.network, size=best), model)
    if is_ahead:
        rows = np.arange(len(numbers)) if plan.ship else training
        if plan.ship:
            weight = _trained(vectors, numbers, rows, length, plan)
        about = {
            "loss": plan.loss,
            "steps": length,
            "photos": len(rows),
            "classes": len(np.unique(numbers[rows])),
        }
        add_linear(model, torch.from_numpy(weight), about | {"measured": not plan.ship})
    return Result(rungs, chosen, validation, parts)


def _labelled(pictures: Listed, labels: str) -> tuple[Listed, np.ndarray]:
    """The pictures with a label, and their labels. Raises UserError if there is none."""
    of_picture = labels_of(labels, pictures.paths)
    rows = [row for row, label in enumerate(of_picture) if label is not None]
    if not rows:
        raise UserError(
            "No photo has a label.",
            "Put the photos of each class into its folder, or name a CSV with --labels.",
        )
    labelled = Listed(
        [pictures.paths[row] for row in rows],
        [pictures.sha256[row] for row in rows],
        [pictures.stamps[row] for row in rows],
        {},
    )
    return labelled, np.array([of_picture[row] for row in rows])


def _measured(
    photos: Path,
    pictures: Listed,
    output: Path,
    network: Network,
    labels: Int64[np.ndarray, "N"],
    folds: Sequence[Int64[np.ndarray, "_"]],
) -> _Measured:
    begin = time.process_time()
    model = output / f"{MODEL}.{network.size}"
    try:
        write_network(network, model)
        vectors = features(photos, pictures, model, output / FEATURES, f"ladder: {network.size} pixels")
    finally:
        shutil.rmtree(model, ignore_errors=True)
    seconds = time.process_time() - begin
    values = np.full(len(labels), np.nan)
    for fold in folds:
        values[fold] = _precision(vectors[fold], labels[fold])
    return _Measured(vectors, values, seconds)


def _held_out_by_length(
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    folds: Sequence[Int64[np.ndarray, "_"]],
    training: Int64[np.ndarray, "_"],
    plan: Plan,
) -> dict[int, Float64[np.ndarray, "N"]]:
    """AP@R of the images of each fold with a map that the other folds trained, by its number of steps."""
    values = {steps: np.full(len(labels), np.nan) for steps in LENGTHS}
    for fold in folds:
        others = np.setdiff1d(training, fold)
        numbered = np.unique(labels[others], return_inverse=True)[1].astype(np.int64)
        for steps, weight in train(vectors[others], numbered, LENGTHS, plan.loss, plan.seed):
            values[steps][fold] = _precision(mapped(vectors[fold], weight), labels[fold])
    return values


def _trained(
    vectors: Float32[np.ndarray, "N D"],
    labels: Int64[np.ndarray, "N"],
    rows: Int64[np.ndarray, "_"],
    length: int,
    plan: Plan,
) -> Float32[np.ndarray, "D D"]:
    numbered = np.unique(labels[rows], return_inverse=True)[1].astype(np.int64)
    ((_, weight),) = train(vectors[rows], numbered, (length,), plan.loss, plan.seed)
    return weight


def _rows(vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]) -> Rows:
    return Rows(np.arange(len(labels), dtype=np.int64), labels, vectors)


def _precision(
    vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]
) -> Float64[np.ndarray, "N"]:
    """AP@R of every image among the others; NaN for the only image of a class."""
    rows = _rows(vectors, labels)
    return per_query(rows, rows, (1,)).ap_at_r


def _tested(
    vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"], test: Int64[np.ndarray, "_"]
) -> tuple[Metrics, Float64[np.ndarray, "_"]]:
    """The metrics on the test images, and the AP@R of each."""
    rows = _rows(vectors[test], labels[test])
    metrics, results = evaluate(Sides(rows, rows), {}, SETTINGS.protocol())
    return metrics, results[SELECTED].ap_at_r


def _compared(
    first: Float64[np.ndarray, "Q"], second: Float64[np.ndarray, "Q"], labels: Int64[np.ndarray, "Q"]
) -> Comparison:
    """second - first, paired, with classes resampled."""
    return compare(first[None], second[None], labels, SETTINGS.bootstrap, SETTINGS.confidence, SETTINGS.seed)


def _mean(values: Float64[np.ndarray, "N"]) -> float:
    return float(np.nanmean(values))
