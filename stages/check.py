"""params.yaml -> nothing but an answer: every block and every recipe of the run is validated, and its raw files are looked for, before anything long
starts."""

from itertools import product
from pathlib import Path

import numpy as np

from pipeline.config import (
    AnalyzeSettings,
    EnsembleSettings,
    EvaluateSettings,
    ExportSettings,
    FolderSource,
    Params,
    Recipe,
    ReportSettings,
    RunSettings,
    Source,
    SweepSettings,
    TrainSettings,
    dataset_settings,
    resolve,
    settings,
)
from pipeline.config.command import in_full
from pipeline.config.effect import require_effect
from pipeline.ingest.collection import require_usable
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.ingest.sources import folder
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file
from pipeline.runtime.stage import main
from pipeline.training.job import check_world


def run() -> None:
    """Validates all settings of the run and asks for the files that it needs. What is wrong or missing is named, and nothing else runs."""
    params = Params.of_stage()
    axes = settings(params, "run", RunSettings)
    machine = settings(params, "train", TrainSettings)
    settings(params, "ensemble", EnsembleSettings)
    settings(params, "export", ExportSettings)
    settings(params, "evaluate", EvaluateSettings)
    settings(params, "analyze", AnalyzeSettings)
    settings(params, "report", ReportSettings)
    sources: dict[str, Source] = {}
    for dataset in axes.datasets:
        sources[dataset], _ = dataset_settings(params, dataset)
        require_files(sources[dataset], dataset)
    recipes: dict[tuple[str, str], Recipe] = {}
    for dataset, method in product(axes.datasets, dict.fromkeys((*axes.methods, *axes.sweeps, *axes.ensembles))):
        recipes[dataset, method] = resolve(params, dataset, method)
    for method in axes.sweeps:
        settings(params, f"sweep.{method}", SweepSettings)
    require_effect(params, recipes)
    for (dataset, method), recipe in recipes.items():
        with in_full(params, dataset, method):
            require_checkpoint(recipe)
            if method in axes.methods:  # what is swept, and a member of an ensemble, trains on one worker
                check_world(recipe, machine.workers)
    require_networks(params, recipes)
    for dataset, source in sources.items():
        if isinstance(source, FolderSource):
            require_classes(params, source, dataset, {method: recipes[dataset, method] for method in axes.methods}, axes.seeds)
    with atomic_file(Path("data/check/passed")) as aside:  # always the same bytes: a change of settings re-runs what reads them, by itself
        aside.write_text("params.yaml is sound\n", encoding="utf-8")


def require_checkpoint(recipe: Recipe) -> None:
    """Raises UserError where the file that the backbone starts from is not there."""
    checkpoint = recipe.backbone.checkpoint
    if checkpoint is not None and not Path(checkpoint).is_file():
        raise UserError(f"The checkpoint {checkpoint} of {recipe.backbone.name} is not there.", "Put it there, or correct backbone.checkpoint.")


def require_networks(params: Params, recipes: dict[tuple[str, str], Recipe]) -> None:
    """Raises UserError for a recipe that makes no method, such as one whose network timm does not know."""
    from pipeline.methods.fit import require_fit  # torch and timm take seconds to import: after all that is found without them

    for (dataset, method), recipe in recipes.items():
        with in_full(params, dataset, method):
            try:
                require_fit(recipe)
            except UserError as error:
                raise UserError(f"{method} on {dataset}: {error.what}", error.remedy) from None


def require_classes(params: Params, source: FolderSource, dataset: str, recipes: dict[str, Recipe], seeds: tuple[int, ...]) -> None:
    """Raises UserError where a user's own images have too few classes or images for a recipe: what training would say, before any image is read."""
    from pipeline.data.sampler import make_sampler
    from pipeline.training.validation import split_classes

    pictures = folder.collection(source).in_order()
    require_usable(pictures, source.path)
    _, labels = np.unique([picture.class_name for picture in pictures if picture.split == "train"], return_inverse=True)
    for (method, recipe), seed in product(recipes.items(), seeds):
        if recipe.batch.sampling != "tuples":
            with in_full(params, dataset, method):
                split = split_classes(np.arange(len(labels)), labels, recipe.training.validation_share, seed, recipe.training.fold)
                make_sampler(split.labels, recipe.batch, seed)


def require_files(source: Source, dataset: str) -> None:
    """Raises UserError, which says what to fetch from where, when the place of a data set's files is empty or not there.

    Whether they are the published files, ingest sees when it reads them.
    """
    for field in type(source).model_fields:
        if field != "path" and field not in PUBLISHED:
            continue
        kind = field if field in PUBLISHED else "cifar100" if source.kind == "collage" else source.kind
        path = getattr(source, field)
        if path is None:  # a part that this run leaves out
            continue
        place = Path(path)
        if place.is_file() or (place.is_dir() and any(not entry.name.startswith(".") for entry in place.iterdir())):
            continue
        found = "is empty" if place.is_dir() else "does not exist"
        fetch = f"{not_there(kind, place, found).remedy} " if kind in PUBLISHED else ""
        raise UserError(f"{place} {found}.", f"{fetch}Put the files there, or say with datasets.{dataset}.source.{field} where they are.")


if __name__ == "__main__":
    main(run)
