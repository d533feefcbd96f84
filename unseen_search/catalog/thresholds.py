"""The threshold of a catalog: on its labels, or without them."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from unseen.data.ingest.sources.folder import Directory
from unseen.evaluation.decision import NEAREST, LeftOut
from unseen.evaluation.unknown import Threshold, UncalibratedError, calibrate_best
from unseen.frozen.encoded import Picture
from unseen.frozen.pictures import picture_names
from unseen.frozen.training_classes import training_classes
from unseen.runtime.errors import UserError
from unseen_search.catalog.answers import best_score
from unseen_search.catalog.files import MODEL

if TYPE_CHECKING:
    from unseen_search.catalog.catalog import Catalog


@dataclass(frozen=True)
class Asked:
    """What a user asks of the answers."""

    at_most_false: float | None = None  # share of the photos of unknown products that may get an answer
    at_most_wrong: float | None = None  # share of the photos of known products that may get a wrong one
    unknown: Path | None = None  # a folder of photos of unknown products, further evidence

    def threshold(self, catalog: "Catalog") -> Threshold | None:
        """As Catalog.threshold; None if no share is asked for."""
        if self.at_most_false is None and self.at_most_wrong is None:
            return None
        given = None if self.unknown is None else _unknown_photos(self.unknown)
        return catalog.threshold(self.at_most_false, at_most_wrong=self.at_most_wrong, unknown=given)


def _unknown_photos(folder: Path) -> dict[str, list[Picture]]:
    """The photos of unknown products below a folder, by product: a folder below it, or a photo in it."""
    photos: dict[str, list[Picture]] = {}
    for name in picture_names(Directory(folder), "unknown").pictures:
        product = str(PurePosixPath(name).parent)
        photos.setdefault(name if product == "." else product, []).append(folder / name)
    if not photos:
        raise UserError(f"{folder} contains no picture.", "Name a folder of photos with --unknown.")
    return photos


def threshold_of(
    catalog: "Catalog",
    at_most_false: float | None,
    at_most_wrong: float | None,
    confidence: float,
    unknown: Mapping[str, Sequence[Picture]],
) -> Threshold:
    """As Catalog.threshold."""
    known = training_classes(catalog.directory / MODEL)
    names, labels = catalog.products, catalog.labels
    if None in labels:
        return _without_labels(catalog, known, at_most_false, at_most_wrong, confidence, unknown)
    if len(names) < 2:
        raise UserError(
            f"All pictures of {catalog.directory} have the label {labels[0]}.",
            "Add pictures of other products, or correct the labels with --labels.",
        )
    return calibrate_best(
        catalog.left_out(),
        len(names),
        at_most_false,
        at_most_wrong,
        confidence,
        trained=None if known is None else np.array([name in known for name in names]),
        given=_given(catalog, unknown, len(names)),
    )


def _without_labels(
    catalog: "Catalog",
    known: frozenset[str] | None,
    at_most_false: float | None,
    at_most_wrong: float | None,
    confidence: float,
    unknown: Mapping[str, Sequence[Picture]],
) -> Threshold:
    problem = (
        f"{catalog.labels.count(None):,} of {len(catalog):,} pictures of {catalog.directory} have no label"
    )
    photos, directory = (shlex.quote(str(path)) for path in (catalog.photos, catalog.directory))
    remedy = (
        f"`unseen index {photos} {directory} --labels folders` takes the folder of each picture as its "
        "label, `--labels FILE.csv` reads the columns path and label."
    )
    if known:
        raise UncalibratedError(
            f"{problem}, and the model was trained on {len(known):,} classes: which pictures show other "
            "products is unknown. The rate of false matches is not calibrated for this model.",
            remedy,
        )
    if at_most_wrong is not None:
        raise UserError(f"{problem}: wrong products cannot be measured.", remedy)
    if len(catalog) < 2:
        raise UserError(f"{catalog.directory} has one picture.", "Add pictures of other products.")
    tables = catalog.left_out()
    groups = len(np.unique(tables[NEAREST].label))
    trained = None if known is None else np.zeros(len(catalog), bool)
    given = _given(catalog, unknown, len(catalog))
    try:
        threshold = calibrate_best(tables, groups, at_most_false, None, confidence, trained, given)
    except UserError as error:
        raise UserError(f"{problem}: each counts as a product. {error.what}", error.remedy) from error
    return threshold._replace(labelled=False)


def _given(catalog: "Catalog", unknown: Mapping[str, Sequence[Picture]], first: int) -> dict[str, LeftOut]:
    """By rule, what photos of unknown products get. first: the number of the first of these products."""
    pictures = [picture for own in unknown.values() for picture in own]
    if not pictures:
        return {}
    sizes = [len(own) for own in unknown.values()]
    label = np.arange(first, first + len(sizes)).repeat(sizes)
    vectors, none = catalog.engine(pictures), np.full(len(label), np.nan, np.float32)
    number = {name: place for place, name in enumerate(catalog.products)}
    given = {}
    for rule in catalog.rules:
        answers = catalog.answers(vectors, 1, rule)
        scores = np.array(
            [best_score(rule, answer.products, answer.matches) for answer in answers], np.float32
        )
        rival = np.array([number[answer.products[0].label] if answer.products else 0 for answer in answers])
        given[rule] = LeftOut(np.arange(len(label)), label, scores, rival, none, label)
    return given
