"""The ladder: every rung measured on the same unseen classes, and the rung that held-out classes choose.

Training classes are divided into folds. Each fold is held out once: its images search among themselves, with
the published features, and with what the other folds trained. The values of all folds together choose

    the size         the frozen rung with the largest MAP@R
    the lengths      the number of steps of each trained rung at this size with the largest MAP@R
    the rung         of the trained rungs that are better than `frozen` at this size (by the rule of
                     evaluation/statistics/better.py, the trained rungs are one family), that with the largest
                     MAP@R, else `frozen`

Then the rungs are trained on all training classes for the chosen lengths. The test classes choose nothing.
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from unseen.data.splits import Split, grouped
from unseen.evaluation.counted_gallery import tile_counter
from unseen.evaluation.evaluate import evaluate
from unseen.evaluation.external import Metrics, Settings
from unseen.evaluation.metrics import Rows, per_query
from unseen.evaluation.record import Record, Run
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.better import Comparison, Outcome, against, judge
from unseen.evaluation.tables import SELECTED
from unseen.experiments.ladder.head import HeadTrainer, require_head
from unseen.experiments.ladder.head import inputs as head_inputs
from unseen.experiments.ladder.photos import with_other
from unseen.experiments.ladder.products import Products, products
from unseen.frozen.embedder import Embedder
from unseen.frozen.labels import FOLDERS, labelled
from unseen.frozen.linear import LinearTrainer
from unseen.frozen.network import Network, write_network
from unseen.frozen.pictures import Listed
from unseen.frozen.store import BLOCK, VECTORS, ArrayStore
from unseen.frozen.tail import AdaptTrainer, tail_of
from unseen.frozen.tail import inputs as adapt_inputs
from unseen.frozen.trained import Task, Trained, Trainer
from unseen.frozen.training_classes import write_training_classes
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress

SETTINGS = Settings(recall_at=(1,))
FEATURES, MODEL = "features", "model"  # in the output directory
HELD_OUT, TEST, OTHER = "held-out classes", "test classes", "photos of another kind"  # places


@dataclass(frozen=True)
class LadderPlan:
    """What the ladder compares. sizes: pixels per side of the frozen rungs. group_of: the group of a class
    (splits.py). loss: of linear.py and tail.py. head: the published method of head.py; None: without that
    rung. adapt: with the rung of tail.py. ship: train what is written on all labelled classes. other:
    labelled photos of another kind, on which each rung is also measured. They train and choose nothing.
    """

    network: Network
    sizes: tuple[int, ...]
    test_share: float = 0.5
    folds: int = 4
    seed: int = 0
    group_of: Mapping[str, str] | None = None
    loss: str = "nsoftmax"
    head: str | None = "gsp"
    adapt: bool = True
    ship: bool = False
    other: Path | None = None
    other_labels: str = FOLDERS


class Rung(NamedTuple):
    """A rung and its accuracy."""

    name: str
    size: int
    steps: int  # of training; 0: frozen
    validation: float  # MAP@R on held-out training classes
    test: Metrics  # on the test classes
    seconds: float  # of CPU: features or maps, and trainings
    # of MAP@R from the frozen rung of the same size, on the test classes
    difference: Comparison | None = None
    validation_difference: Comparison | None = None  # the same on held-out training classes
    outcome: Outcome | None = None  # of the latter, in the family of all trained rungs
    adjusted: float | None = None  # its p value
    other: Metrics | None = None  # on the photos of another kind
    other_difference: Comparison | None = None  # the same on these photos
    products: Products | None = None  # None: all test photos show one product


class Result(NamedTuple):
    """All rungs, and the one that held-out training classes chose."""

    rungs: list[Rung]
    chosen: Rung
    split: Split


class _Measured(NamedTuple):
    """One size: its features, the values of the frozen rung, and the CPU seconds of the features."""

    vectors: Float32[np.ndarray, "N D"]
    held_out: Float64[np.ndarray, "N"]  # AP@R of training images within their fold; NaN for test images
    seconds: float


class _Classes(NamedTuple):
    """The label of each photo, and the photos of each fold, of all training classes, of the test classes, and
    of another kind."""

    labels: Int64[np.ndarray, "N"]
    folds: list[Int64[np.ndarray, "_"]]
    training: Int64[np.ndarray, "_"]
    test: Int64[np.ndarray, "_"]
    other: Int64[np.ndarray, "_"]


def ladder(photos: Path, output: Path, plan: LadderPlan, labels: str = FOLDERS) -> Result:
    """Measures all rungs on the photos of a folder and writes the chosen model to `output`/model.

    labels: folders, or the path of a CSV (frozen/labels.py). Features are kept in `output`/features. The
    names of the classes that trained the model are beside it (frozen/training_classes.py). Raises UserError
    for too few classes (splits.py) before a picture is read, if a picture is damaged, no class has two
    pictures, and as `Embedder` does.
    """

    def split(label_of: list[str]) -> Split:
        source = f"The photos of {photos}"
        return grouped(label_of, plan.test_share, plan.folds, plan.seed, plan.group_of, source)

    pictures, label_of = labelled(photos, labels, check=split)
    parts, names = split(label_of), np.array(label_of)
    numbers = np.unique(names, return_inverse=True)[1].astype(np.int64)
    sides = [np.flatnonzero(np.isin(names, sorted(fold))) for fold in parts.folds]
    test = np.flatnonzero(np.isin(names, sorted(parts.test)))
    training = np.sort(np.concatenate(sides))
    if not max(np.bincount(numbers[test])) > 1:
        raise UserError("No test class has two pictures.", "Add pictures of the classes, or change --seed.")
    every = np.arange(len(numbers))
    if plan.other is not None:
        pictures, numbers = with_other(pictures, numbers, plan.other, plan.other_labels)
    other = np.arange(len(every), len(numbers))

    if plan.head is not None:
        require_head(plan.head, replace(plan.network, size=plan.sizes[0]), output / MODEL)
    if plan.adapt:
        tail_of(replace(plan.network, size=plan.sizes[0]), output / MODEL)

    measured = {}
    for size in plan.sizes:
        network = replace(plan.network, size=size)
        measured[size] = _measured(photos, pictures, output, network, numbers, sides)
    best = max(plan.sizes, key=lambda size: _mean(measured[size].held_out))
    classes = _Classes(numbers, sides, training, test, other)
    rungs, records = [], {}
    for size, of_size in measured.items():
        vectors = of_size.vectors[np.concatenate([test, other])]
        folds = [of_size.vectors[fold] for fold in sides]
        rung, of_places = _rung(
            ("frozen", size, 0), of_size.held_out, folds, vectors, classes, of_size.seconds
        )
        rungs.append(rung)
        if size == best:
            frozen, records = rung, _runs(rung, of_places, plan.seed)
    model = output / MODEL
    shutil.rmtree(model, ignore_errors=True)
    network = replace(plan.network, size=best)
    write_network(network, model)

    trainers: list[Trainer] = [LinearTrainer(measured[best].vectors, plan.loss, plan.seed)]
    if plan.head is not None:
        least = min(len(np.unique(numbers[np.setdiff1d(training, fold)])) for fold in sides)
        given = head_inputs(plan.head, network, photos, pictures, output / FEATURES, model, least)
        trainers.append(HeadTrainer(given, plan.seed))
    if plan.adapt:
        adapted = adapt_inputs(network, photos, pictures, output / FEATURES, model)
        trainers.append(AdaptTrainer(adapted, plan.loss, plan.seed))
    climbs = [_Climb(trainer, classes) for trainer in trainers]
    label = f"ladder: {', '.join(trainer.name for trainer in trainers)}"
    # Each fold trains all rungs: after the first one the remaining time is that of the whole ladder.
    with Progress(label, len(sides) + 1, "trainings of each rung") as progress:
        for fold in sides:
            for climb in climbs:
                climb.train_without(fold)
            progress.advance()
        climbed = []
        for climb in climbs:
            rung, of_places, trained = climb.finish(best, measured[best].seconds)
            climbed.append((rung, trained))
            records |= _runs(rung, of_places, plan.seed)
        progress.advance()
    verdicts = {
        place: judge(records, against("frozen", [each.name for each in trainers], "map_at_r", places=[place]))
        for place in (HELD_OUT, TEST, OTHER)
        if place != OTHER or len(other)
    }
    for index, (rung, _) in enumerate(climbed):
        of_rung = {place: of_place[index] for place, of_place in verdicts.items()}
        choice = of_rung[HELD_OUT]
        rungs.append(
            rung._replace(
                difference=of_rung[TEST].comparison,
                validation_difference=choice.comparison,
                outcome=choice.outcome,
                adjusted=choice.adjusted,
                other_difference=of_rung[OTHER].comparison if len(other) else None,
            )
        )
    ahead = [index for index, verdict in enumerate(verdicts[HELD_OUT]) if verdict.sign > 0]
    if not ahead:
        return Result(rungs, frozen, parts)
    index = max(ahead, key=lambda index: climbed[index][0].validation)
    chosen = rungs[len(measured) + index]
    (_, trained), trainer = climbed[index], trainers[index]
    rows = every if plan.ship else training
    if plan.ship:
        (trained,) = trainer.train(_task(rows, numbers, (chosen.steps,), test))
    trainer.write(model, trained, len(rows), len(np.unique(numbers[rows])), not plan.ship)
    write_training_classes(model, set(names[rows].tolist()))
    return Result(rungs, chosen, parts)


class _Climb:
    """The trainings of a rung: without each fold, then with all training classes."""

    def __init__(self, trainer: Trainer, classes: _Classes) -> None:
        self._trainer, self._classes, self._seconds = trainer, classes, 0.0
        self._held_out = {steps: np.full(len(classes.labels), np.nan) for steps in trainer.lengths}
        self._folds: dict[int, list[Float32[np.ndarray, "_ D"]]] = {steps: [] for steps in trainer.lengths}

    def train_without(self, fold: Int64[np.ndarray, "_"]) -> None:
        """Trains on the other folds and searches in this one."""
        labels = self._classes.labels
        others = np.setdiff1d(self._classes.training, fold)
        for trained in self._train(others, self._trainer.lengths, fold):
            self._held_out[trained.steps][fold] = _precision(trained.vectors, labels[fold])
            self._folds[trained.steps].append(trained.vectors)

    def finish(self, size: int, seconds: float) -> tuple[Rung, dict[str, Record], Trained]:
        """The rung with the length that held-out classes choose, its records by place, and its training on
        all training classes. seconds: of CPU, for its features if it has none of its own."""
        trainer, classes = self._trainer, self._classes
        length = max(self._held_out, key=lambda steps: _mean(self._held_out[steps]))
        searched = np.concatenate([classes.test, classes.other])
        (trained,) = self._train(classes.training, (length,), searched)
        needed = self._seconds + (trainer.seconds or seconds)
        folds, held_out = self._folds[length], self._held_out[length]
        of_rung = trainer.name, size, length
        return *_rung(of_rung, held_out, folds, trained.vectors, classes, needed), trained

    def _train(
        self, rows: Int64[np.ndarray, "_"], lengths: Sequence[int], searched: Int64[np.ndarray, "_"]
    ) -> list[Trained]:
        begin = time.process_time()
        trained = self._trainer.train(_task(rows, self._classes.labels, lengths, searched))
        self._seconds += time.process_time() - begin
        return trained


def _rung(
    of_rung: tuple[str, int, int],
    held_out: Float64[np.ndarray, "N"],
    folds: Sequence[Float32[np.ndarray, "_ D"]],
    vectors: Float32[np.ndarray, "_ D"],
    classes: _Classes,
    seconds: float,
) -> tuple[Rung, dict[str, Record]]:
    """A rung and its records by place. of_rung: name, size and steps. held_out: AP@R of each photo within its
    fold. folds: the vectors of each. vectors: of the test photos, then of those of another kind."""
    labels, (test, other) = classes.labels, np.split(vectors, [len(classes.test)])
    records = {HELD_OUT: _record(held_out[classes.training], labels[classes.training])}
    metrics: dict[str, Metrics] = {}
    for place, photos, own in ((TEST, classes.test, test), (OTHER, classes.other, other)):
        if len(photos):
            rows = _rows(own, labels[photos])
            sides, protocol = Sides(rows, rows), SETTINGS.protocol()
            metrics[place], results = evaluate(sides, {}, protocol, counter=tile_counter(), progress=False)
            records[place] = _record(results[SELECTED].ap_at_r, labels[photos])
    rung = Rung(*of_rung, _mean(held_out), metrics[TEST], seconds, other=metrics.get(OTHER))
    catalogs = [(own, labels[fold]) for own, fold in zip(folds, classes.folds, strict=True)]
    rung = rung._replace(products=products(catalogs, (test, labels[classes.test])))
    return rung, records


def _record(ap_at_r: Float64[np.ndarray, "Q"], labels: Int64[np.ndarray, "Q"]) -> Record:
    """The class means of Q queries; NaN: the only image of a class."""
    scored = ~np.isnan(ap_at_r)
    classes, member = np.unique(labels[scored], return_inverse=True)
    images, names = np.bincount(member), [f"{label:09d}" for label in classes]
    means = np.bincount(member, ap_at_r[scored]) / images
    return Record(
        settings={},
        images=dict(zip(names, images.tolist(), strict=True)),
        classes={"map_at_r": dict(zip(names, means.tolist(), strict=True))},
        cpu_seconds=0.0,
    )


def _runs(rung: Rung, records: Mapping[str, Record], seed: int) -> dict[Run, Record]:
    return {Run(rung.name, place, seed): record for place, record in records.items()}


def _task(
    rows: Int64[np.ndarray, "_"],
    labels: Int64[np.ndarray, "N"],
    lengths: Sequence[int],
    searched: Int64[np.ndarray, "_"],
) -> Task:
    """The training on the photos `rows`, whose classes are numbered from 0."""
    numbered = np.unique(labels[rows], return_inverse=True)[1].astype(np.int64)
    return Task(rows, numbered, lengths, searched)


def _measured(
    photos: Path,
    pictures: Listed,
    output: Path,
    network: Network,
    labels: Int64[np.ndarray, "N"],
    folds: Sequence[Int64[np.ndarray, "_"]],
) -> _Measured:
    """The vectors of a model that are in `output` are used again; new ones are added in blocks, so that a
    killed run continues."""
    begin = time.process_time()
    model = output / f"{MODEL}.{network.size}"
    try:
        write_network(network, model)
        embedder = Embedder(model)
        store = ArrayStore(output / FEATURES / embedder.fingerprint()[:16], embedder.dim, VECTORS)
        store.refresh()
        paths = dict(zip(pictures.sha256, (photos / path for path in pictures.paths), strict=True))
        store.fill(paths, BLOCK, lambda rows, _: embedder(rows, f"ladder: {network.size} pixels"))
        vectors = store.rows(pictures.sha256)
    finally:
        shutil.rmtree(model, ignore_errors=True)
    seconds = time.process_time() - begin
    values = np.full(len(labels), np.nan)
    for fold in folds:
        values[fold] = _precision(vectors[fold], labels[fold])
    return _Measured(vectors, values, seconds)


def _rows(vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]) -> Rows:
    return Rows(np.arange(len(labels), dtype=np.int64), labels, vectors)


def _precision(
    vectors: Float32[np.ndarray, "N D"], labels: Int64[np.ndarray, "N"]
) -> Float64[np.ndarray, "N"]:
    """AP@R of every image among the others; NaN for the only image of a class."""
    rows = _rows(vectors, labels)
    return per_query(rows, rows, (1,), counter=tile_counter()).ap_at_r


def _mean(values: Float64[np.ndarray, "N"]) -> float:
    return float(np.nanmean(values))
