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
from unseen.evaluation.metrics import Rows
from unseen.evaluation.record import Record, Run
from unseen.evaluation.sides import Sides
from unseen.evaluation.statistics.better import Comparison, Outcome, against, judge
from unseen.evaluation.tables import SELECTED
from unseen.experiments.experiment import Experiment, Store, records
from unseen.experiments.ladder.head import HeadTrainer, require_head
from unseen.experiments.ladder.head import inputs as head_inputs
from unseen.experiments.ladder.photos import with_other
from unseen.experiments.ladder.products import Products, products
from unseen.experiments.ladder.runner import RECORDS, Part, RungRunner, after, class_means, precision, task
from unseen.frozen.embedder import Embedder
from unseen.frozen.labels import FOLDERS, labelled
from unseen.frozen.linear import LinearTrainer
from unseen.frozen.network import Network, write_network
from unseen.frozen.pictures import Listed
from unseen.frozen.store import BLOCK, VECTORS, ArrayStore
from unseen.frozen.tail import AdaptTrainer, tail_of
from unseen.frozen.tail import inputs as adapt_inputs
from unseen.frozen.trained import Trainer
from unseen.frozen.training_classes import write_training_classes
from unseen.runtime.errors import UserError

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

    labels: folders, or the path of a CSV (frozen/labels.py). Features and trainings are kept in `output`, so
    that a killed run continues. The names of the classes that trained the model are beside it
    (frozen/training_classes.py). Raises UserError for too few classes (splits.py) before a picture is read,
    if a picture is damaged, no class has two pictures, and as `Embedder` does.
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
    for part, rows in (("test", test), ("training", training)):
        if not max(np.bincount(numbers[rows])) > 1:
            remedy = "Add pictures of the classes, or change --seed."
            raise UserError(f"No {part} class has two pictures.", remedy)
    every = np.arange(len(numbers))
    if plan.other is not None:
        pictures, numbers = with_other(pictures, numbers, plan.other, plan.other_labels)
    other = np.arange(len(every), len(numbers))

    if plan.head is not None:
        require_head(plan.head, replace(plan.network, size=plan.sizes[0]), output / MODEL)
    if plan.adapt:
        tail_of(replace(plan.network, size=plan.sizes[0]), output / MODEL)

    classes = _Classes(numbers, sides, training, test, other)
    features, measured = {}, {}
    for size in plan.sizes:
        features[size], seconds = _features(photos, pictures, output, replace(plan.network, size=size))
        folds = [features[size][fold] for fold in sides]
        searched = features[size][np.concatenate([test, other])]
        measured[size] = _rung(("frozen", size, 0), folds, searched, classes, seconds)
    best = max(measured, key=lambda size: measured[size][0].validation)
    (frozen, of_frozen), rungs = measured[best], [rung for rung, _ in measured.values()]
    model = output / MODEL
    shutil.rmtree(model, ignore_errors=True)
    network = replace(plan.network, size=best)
    write_network(network, model)

    trainers: list[Trainer] = [LinearTrainer(features[best], plan.loss, plan.seed)]
    if plan.head is not None:
        least = min(len(np.unique(numbers[np.setdiff1d(training, fold)])) for fold in sides)
        given = head_inputs(plan.head, network, photos, pictures, output / FEATURES, model, least)
        trainers.append(HeadTrainer(given, plan.seed))
    if plan.adapt:
        adapted = adapt_inputs(network, photos, pictures, output / FEATURES, model)
        trainers.append(AdaptTrainer(adapted, plan.loss, plan.seed))
    final, climbed = _climb(trainers, classes, (pictures.sha256, numbers), output, plan.seed, frozen)
    runs = {
        Run(rung.name, place, plan.seed): record
        for rung, of_places in [(frozen, of_frozen), *climbed]
        for place, record in of_places.items()
    }
    verdicts = {
        place: judge(runs, against("frozen", [each.name for each in trainers], "map_at_r", places=[place]))
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
    chosen, trainer = rungs[len(measured) + index], trainers[index]
    rows = every if plan.ship else training
    if plan.ship:
        (trained,) = trainer.train(task(rows, numbers, (chosen.steps,), test))
    else:
        trained = final.trained(Run(chosen.name, TEST, plan.seed))
    trainer.write(model, trained, len(rows), len(np.unique(numbers[rows])), not plan.ship)
    write_training_classes(model, set(names[rows].tolist()))
    return Result(rungs, chosen, parts)


def _climb(
    trainers: Sequence[Trainer],
    classes: _Classes,
    photos: tuple[Sequence[str], Int64[np.ndarray, "N"]],
    output: Path,
    seed: int,
    frozen: Rung,
) -> tuple[RungRunner, list[tuple[Rung, dict[str, Record]]]]:
    """The trained rungs, and what trained them on all training classes: without each fold, for all lengths,
    then on all training classes for the length that held-out classes choose."""
    nothing, store = classes.training[:0], Store(output / RECORDS)
    folds = {
        f"fold {number}": Part(np.setdiff1d(classes.training, fold), fold, nothing)
        for number, fold in enumerate(classes.folds, 1)
    }
    all_lengths = {trainer.name: trainer.lengths for trainer in trainers}
    held_out = RungRunner(trainers, all_lengths, folds, photos, output)
    # Each fold trains all rungs: after the first one the remaining time is that of all.
    runs = tuple(Run(trainer.name, fold, seed) for fold in folds for trainer in trainers)
    of_folds = records(Experiment(f"ladder: {HELD_OUT}", runs), held_out, store)

    lengths = {}
    for name, of_name in all_lengths.items():
        # A fold whose classes have one photo each chooses nothing.
        of_rung = [record for run, record in of_folds.items() if run.row == name and record.images]
        weights = [sum(record.images.values()) for record in of_rung]
        means = [[record.mean(after(steps)) for record in of_rung] for steps in of_name]
        lengths[name] = (of_name[int(np.average(means, 1, weights).argmax())],)
    parts = {TEST: Part(classes.training, classes.test, classes.other)}
    final = RungRunner(trainers, lengths, parts, photos, output)
    runs = tuple(Run(trainer.name, TEST, seed) for trainer in trainers)
    of_test = records(Experiment("ladder: all training classes", runs), final, store)

    climbed = []
    for trainer, last in zip(trainers, runs, strict=True):
        (steps,) = lengths[trainer.name]
        of_place = {run: record for run, record in of_folds.items() if run.row == trainer.name}
        vectors = [held_out.vectors(run, record, steps) for run, record in of_place.items()]
        searched = final.vectors(last, of_test[last], steps)
        trainings = sum(record.cpu_seconds for record in [*of_place.values(), of_test[last]])
        seconds = trainings + (trainer.seconds or frozen.seconds)
        climbed.append(_rung((trainer.name, frozen.size, steps), vectors, searched, classes, seconds))
    return final, climbed


def _rung(
    of_rung: tuple[str, int, int],
    folds: Sequence[Float32[np.ndarray, "_ D"]],
    vectors: Float32[np.ndarray, "_ D"],
    classes: _Classes,
    seconds: float,
) -> tuple[Rung, dict[str, Record]]:
    """A rung and its records by place. of_rung: name, size and steps. folds: the vectors of each. vectors: of
    the test photos, then of those of another kind."""
    labels, (test, other) = classes.labels, np.split(vectors, [len(classes.test)])
    catalogs = [(own, labels[fold]) for own, fold in zip(folds, classes.folds, strict=True)]
    held_out = np.full(len(labels), np.nan)
    for fold, catalog in zip(classes.folds, catalogs, strict=True):
        held_out[fold] = precision(*catalog)
    records = {HELD_OUT: _record(held_out[classes.training], labels[classes.training])}
    metrics: dict[str, Metrics] = {}
    for place, photos, own in ((TEST, classes.test, test), (OTHER, classes.other, other)):
        if len(photos):
            rows = Rows(np.arange(len(photos), dtype=np.int64), labels[photos], own)
            sides, protocol = Sides(rows, rows), SETTINGS.protocol()
            metrics[place], results = evaluate(sides, {}, protocol, counter=tile_counter(), progress=False)
            records[place] = _record(results[SELECTED].ap_at_r, labels[photos])
    validation = float(np.nanmean(held_out))
    rung = Rung(*of_rung, validation, metrics[TEST], seconds, other=metrics.get(OTHER))
    return rung._replace(products=products(catalogs, (test, labels[classes.test]))), records


def _record(ap_at_r: Float64[np.ndarray, "Q"], labels: Int64[np.ndarray, "Q"]) -> Record:
    means, images = class_means(ap_at_r, labels)
    return Record(settings={}, images=images, classes={"map_at_r": means}, cpu_seconds=0.0)


def _features(
    photos: Path, pictures: Listed, output: Path, network: Network
) -> tuple[Float32[np.ndarray, "N D"], float]:
    """The vectors of all photos, and the CPU seconds. Those that are in `output` are used again; new ones are
    added in blocks, so that a killed run continues."""
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
    return vectors, time.process_time() - begin
