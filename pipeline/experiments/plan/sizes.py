"""Checks of stage `resolve`: settings that the size of a data set or of an embedding limits."""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

import numpy as np
from jaxtyping import Int

from unseen.config.definitions import Definitions
from unseen.config.document import Document, Params
from unseen.config.stages import EnsembleSettings
from unseen.data.ingest.collection import Picture, require_usable
from unseen.data.ingest.settings import FolderSource, ParquetSource, PartsSource, Source, WebdatasetSource
from unseen.data.ingest.sources import folder, parquet, webdataset
from unseen.data.splits import validation_classes
from unseen.evaluation.settings import Cells, EvaluateSettings, IvfPq, Reduce
from unseen.experiments.plan.trainings import Training, located
from unseen.runtime.errors import UserError


@dataclass(frozen=True)
class Size:
    """The size of a data set before its images are read."""

    train_classes: int
    train_images: int
    neighbours: int  # rows that a query is compared with: the gallery without the query itself
    train_labels: Int[np.ndarray, " N"] | None  # None if only the counts are published


def size_of(source: Source) -> Size | None:
    """The size of a source: of a drawn set from its settings, of own images from the list of them, of a
    published set from its published counts. None if none of these exists, or to list the images takes as
    long as ingest.

    Raises UserError for own images that cannot be used.
    """
    if isinstance(source, PartsSource):
        labels = np.repeat(np.arange(source.train_classes), source.images_per_class)
        neighbours = source.test_classes * source.images_per_class - 1
        return Size(source.train_classes, len(labels), neighbours, labels)
    if isinstance(source, FolderSource | ParquetSource | WebdatasetSource):
        pictures = _listed(source)
        if pictures is None:
            return None
        require_usable(pictures, source.path)
        names, labels = np.unique(
            [picture.class_name for picture in pictures if picture.split == "train"], return_inverse=True
        )
        test = [picture for picture in pictures if picture.split == "test"]
        gallery = sum(picture.is_gallery for picture in test)
        itself = all(picture.is_gallery for picture in test if picture.is_query)
        return Size(len(names), len(labels), gallery - itself, labels)
    counts = getattr(import_module(source.module), "COUNTS", None)
    if counts is None:
        return None
    neighbours = counts["gallery"].images if "gallery" in counts else counts["test"].images - 1
    return Size(counts["train"].classes, counts["train"].images, neighbours, None)


def _listed(source: FolderSource | ParquetSource | WebdatasetSource) -> list[Picture] | None:
    """The images in row order; None if compressed archives must be inflated first."""
    if isinstance(source, FolderSource):
        return folder.collection(source).in_order()
    listed = parquet.listed(source) if isinstance(source, ParquetSource) else webdataset.listed(source)
    return None if listed is None else listed.in_order()


def require_batches(definitions: Definitions, size: Size, trainings: Iterable[Training]) -> None:
    """Raises UserError for a batch with more classes or images than the train images have, without the fold
    that the training holds out."""
    for training in trainings:
        batch, fold = training.recipe.batch, training.recipe.training.fold
        classes = size.train_classes
        if fold is not None:
            classes -= len(validation_classes(fold.model, classes, fold.folds))
        too_many_classes = batch.sampling == "classes" and batch.classes > classes
        if batch.sampling != "tuples" and (too_many_classes or batch.size > size.train_images):
            omitted = "" if fold is None else f", {classes:,} of them without the fold"
            with located(definitions, training):
                raise UserError(
                    f"A batch of {training.method} has {batch.size:,} images ({batch.classes:,} classes x "
                    f"{batch.images_per_class:,}), but {training.dataset} has {size.train_images:,} train "
                    f"images of {size.train_classes:,} classes{omitted}.",
                    "Lower batch.classes or batch.images_per_class.",
                )


def require_folds(params: Params, ensemble: EnsembleSettings, dataset: str, size: Size) -> None:
    """Raises UserError for more folds than train classes, and for a recall beyond the gallery."""
    if len(ensemble.folds) > size.train_classes:
        raise UserError(
            f"{params.where('ensemble.folds')} has {len(ensemble.folds):,} folds, but {dataset} has "
            f"{size.train_classes:,} train classes.",
            f"Remove folds: {size.train_classes} or less are possible.",
        )
    _require_ranks(params, "ensemble.recall_at", ensemble.recall_at, dataset, size)


def require_evaluable(
    params: Params, evaluate: EvaluateSettings, dataset: str, size: Size, dimensions: dict[str, int]
) -> None:
    """Raises UserError for a recall beyond the gallery, and an index that the gallery is too small for.
    `dimensions`: of the embeddings of each method."""
    _require_ranks(params, "evaluate.recall_at", evaluate.recall_at, dataset, size)
    approximate = evaluate.approximate
    if isinstance(approximate, Cells) and (approximate.lists or 0) > size.neighbours:
        raise UserError(
            f"{params.where('evaluate.approximate.lists')} is {approximate.lists:,}, but {dataset} has "
            f"{size.neighbours:,} neighbours of a query.",
            f"Set it to {size.neighbours} or less, or leave it out.",
        )
    for method, dim in dimensions.items():
        if isinstance(approximate, IvfPq) and dim % approximate.code_bytes:
            divisors = ", ".join(str(divisor) for divisor in range(1, dim + 1) if dim % divisor == 0)
            raise UserError(
                f"{params.where('evaluate.approximate.code_bytes')} is {approximate.code_bytes}, which does "
                f"not divide the {dim} dimensions of {method} on {dataset}.",
                f"Set it to a divisor: {divisors}.",
            )


def require_reducible(
    document: Document, key: str, reduce: Reduce, cell: tuple[str, str], size: Size | None, dim: int
) -> None:
    """Raises UserError for a reduction to more dimensions than the embeddings have.

    document, key: where it is set. cell: data set and method. dim: of its embeddings. size: of the data set;
    None if it is unknown.
    """
    most, images = dim, ""
    if size is not None:
        most = min(dim, size.train_images - 1)  # the rank of the train embeddings around their mean
        images = f", of {size.train_images:,} train images"
    if reduce.dim > most:
        raise UserError(
            f"{document.where(f'{key}.dim')} is {reduce.dim:,}, but {cell[1]} on {cell[0]} has embeddings of "
            f"{dim} dimensions{images}.",
            f"Set {key}.dim to {most} or less.",
        )


def _require_ranks(params: Params, key: str, ranks: tuple[int, ...], dataset: str, size: Size) -> None:
    if max(ranks, default=0) > size.neighbours:
        raise UserError(
            f"{params.where(key)} contains {max(ranks):,}, but a query of {dataset} has "
            f"{size.neighbours:,} neighbours.",
            f"Remove the values above {size.neighbours}.",
        )
