"""What can be known before anything long starts: files that are missing, recipes that no network fits, too
few classes."""

from itertools import product
from pathlib import Path

import numpy as np

from pipeline.config import FolderSource, Params, Recipe, Source
from pipeline.config.command import in_full
from pipeline.ingest.collection import require_usable
from pipeline.ingest.releases import PUBLISHED, missing_data_error
from pipeline.ingest.sources import folder
from pipeline.runtime.errors import UserError

Recipes = dict[tuple[str, str], Recipe]  # (data set, method) -> recipe


def require_distinct_cells(datasets: tuple[str, ...], methods: tuple[str, ...]) -> None:
    """Raises UserError where two cells of the matrix get the same stage name: DVC would keep one of them
    without a message."""
    names: dict[str, tuple[str, str]] = {}
    for dataset, method in product(dict.fromkeys(datasets), dict.fromkeys(methods)):
        other = names.setdefault(f"{dataset}-{method}", (dataset, method))
        if other != (dataset, method):
            raise UserError(
                f"Method {method} on data set {dataset} and method {other[1]} on data set {other[0]} get "
                "the same stage name, "
                f"train@{dataset}-{method}.",
                "Rename one of them, for example with `_` instead of `-`.",
            )


def require_checkpoint(recipe: Recipe) -> None:
    """Raises UserError where the file that the backbone starts from is missing."""
    checkpoint = recipe.backbone.checkpoint
    if checkpoint is not None and not Path(checkpoint).is_file():
        raise UserError(
            f"The checkpoint {checkpoint} of {recipe.backbone.name} is missing.",
            "Put the file there, or correct backbone.checkpoint.",
        )


def require_networks(params: Params, recipes: Recipes) -> None:
    """Raises UserError for a recipe that makes no method, such as one whose network timm does not have."""
    from pipeline.methods.fit import (
        require_fit,
    )  # torch and timm take seconds to import: errors found without them come first

    for (dataset, method), recipe in recipes.items():
        with in_full(params, dataset, method):
            try:
                require_fit(recipe)
            except UserError as error:
                raise UserError(f"{method} on {dataset}: {error.what}", error.remedy) from None


def require_classes(
    params: Params, source: FolderSource, dataset: str, recipes: dict[str, Recipe], seeds: tuple[int, ...]
) -> None:
    """Raises UserError where a user's own images have too few classes or images for a recipe: as training
    would, before it starts."""
    from pipeline.data.class_split import split_classes
    from pipeline.data.sampler import make_sampler

    pictures = folder.collection(source).in_order()
    require_usable(pictures, source.path)
    _, labels = np.unique(
        [picture.class_name for picture in pictures if picture.split == "train"], return_inverse=True
    )
    for (method, recipe), seed in product(recipes.items(), seeds):
        if recipe.batch.sampling != "tuples":
            with in_full(params, dataset, method):
                share, fold = recipe.training.validation_share, recipe.training.fold
                split = split_classes(np.arange(len(labels)), labels, share, seed, fold)
                make_sampler(split.labels, recipe.batch, seed)


def require_files(source: Source, dataset: str) -> None:
    """Raises UserError, with what to fetch from where, when the place of a data set's files is empty or
    missing.

    Whether they are the published files, ingest checks when it reads them.
    """
    for field in type(source).model_fields:
        if field != "path" and field not in PUBLISHED:
            continue
        kind = field if field in PUBLISHED else "cifar100" if source.kind == "collage" else source.kind
        path = getattr(source, field)
        if path is None:  # a part that this run leaves out
            continue
        place = Path(path)
        if place.is_file() or (
            place.is_dir() and any(not entry.name.startswith(".") for entry in place.iterdir())
        ):
            continue
        state = "is empty" if place.is_dir() else "does not exist"
        fetch = f"{missing_data_error(kind, place, state).remedy} " if kind in PUBLISHED else ""
        raise UserError(
            f"{place} {state}.",
            f"{fetch}Put the files there, or name their place with datasets.{dataset}.source.{field}.",
        )
