"""Checks of stage `resolve`, before long work starts: missing files, recipes with incompatible parts, too few
classes."""

from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from jaxtyping import Int

from unseen.config.definitions import Definitions
from unseen.config.stages import TrainSettings
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import Source
from unseen.experiments.plan.facts import Facts
from unseen.experiments.plan.trainings import Training, located
from unseen.methods.settings import Recipe
from unseen.networks.networks import PROJECT_NETWORKS
from unseen.networks.weights import REMEDY, difference
from unseen.runtime.errors import UserError
from unseen.runtime.names import say


def require_distinct_cells(datasets: tuple[str, ...], methods: tuple[str, ...]) -> None:
    """Raises UserError if two cells of the matrix get the same stage name. DVC would keep one of them without
    a message."""
    names: dict[str, tuple[str, str]] = {}
    for dataset, method in product(dict.fromkeys(datasets), dict.fromkeys(methods)):
        other = names.setdefault(f"{dataset}-{method}", (dataset, method))
        if other != (dataset, method):
            raise UserError(
                f"Method {method} on data set {dataset} and method {other[1]} on data set {other[0]} get "
                f"the same stage name, train@{dataset}-{method}.",
                "Rename one of them, for example with `_` instead of `-`.",
            )


def require_checkpoint(recipe: Recipe) -> None:
    """Raises UserError if the checkpoint of the backbone is missing, or has the name of a published file with
    another hash."""
    checkpoint = recipe.backbone.checkpoint
    if checkpoint is None:
        return
    if not Path(checkpoint).is_file():
        raise UserError(
            f"The checkpoint {checkpoint} of {recipe.backbone.name} is missing.",
            "Put the file there, or correct backbone.checkpoint.",
        )
    if problem := difference(Path(checkpoint)):
        raise UserError(problem, REMEDY)


def require_equal_stopping(definitions: Definitions, dataset: str, recipes: Mapping[str, Recipe]) -> None:
    """Raises UserError if the trainings of the rows of a study with `search` do not have one
    `training.patience`. `recipes`: of the swept methods on a data set."""
    rows: dict[str, tuple[str, int | None]] = {}  # study -> its first row
    for method, recipe in recipes.items():
        row = definitions.rows.get(method)
        if row is None or row.search is None:
            continue
        patience = recipe.training.patience
        first, expected = rows.setdefault(row.study, (method, patience))
        if patience != expected:
            where = row.document.where(f"{row.study}.search")
            raise UserError(
                f"{where}: training.patience of {first} on {dataset} is {expected}, that of {method} is "
                f"{patience}: their trials stop early by different rules.",
                "Set training.patience in `recipe` of the study: null, or one number for all rows.",
            )


def require_schedule(definitions: Definitions, training: Training) -> None:
    """Raises UserError for a warm-up that is longer than the training, if params.yaml or a trial sets it.

    A shortened training with the published warm-up, such as a first try, gets a note.
    """
    warmup, iterations = training.recipe.schedule.warmup, training.recipe.training.iterations
    if not 0 < iterations < warmup:
        return
    what = (
        f"The warm-up has {warmup:,} iterations, but the training has {iterations:,}: the learning rate "
        "stays below its value."
    )
    layer = definitions.layers(training.dataset, training.method).origin("schedule.warmup")
    if "schedule.warmup" in training.fields or layer.startswith(f"{definitions.params.label}:"):
        remedy = f"Set schedule.warmup={iterations} or lower, or raise training.iterations."
        raise UserError(what, remedy)
    say(f"note: {training.place}{training.name}: {what} ({layer})")


def require_statistics(recipe: Recipe) -> None:
    """Raises UserError if the mean and standard deviation of a checkpoint are unknown: timm states them for
    published weights, which the tag of a network's name selects. The project's own networks have one file
    each."""
    name, checkpoint, input = recipe.backbone.name, recipe.backbone.checkpoint, recipe.input
    if checkpoint is None or name in PROJECT_NETWORKS or "." in name:
        return
    if input.mean is not None and input.std is not None:
        return
    from unseen.frozen.network import STATISTICS, candidates
    from unseen.networks.published_network import weights_of_architecture

    try:
        pairs, published = candidates(name), weights_of_architecture(name)
    except ValueError:  # timm has the network without weights
        pairs, published = STATISTICS, []
    lines = []
    for mean, std in pairs.values():
        users = [weights.name for weights in published if (weights.mean, weights.std) == (mean, std)]
        lines.append(f"mean {list(mean)}, std {list(std)}" + (f"  as {', '.join(users)}" if users else ""))
    remedy = "Set"
    if published:
        remedy = f"Name the published weights with their tag, backbone.name={published[0].name}, or set"
    raise UserError(
        f"The mean and standard deviation with which {checkpoint} of {name} was trained are unknown. Wrong "
        "values cost much of the accuracy. Candidates:\n  " + "\n  ".join(lines),
        f"{remedy} input.mean and input.std. `unseen measure PHOTOS --network {name} --weights "
        f"{checkpoint}` measures the candidates on labelled photos.",
    )


def require_networks(
    definitions: Definitions, trainings: Iterable[Training], machine: TrainSettings, facts: Facts
) -> dict[tuple[str, str], int]:
    """The dimension of the embeddings of each method on each data set.

    Raises UserError for a recipe from which no method can be built, such as one with an unknown network, for
    one that cannot be trained in several passes (`machine.images_per_pass`), and for a gradient noise of a
    term that the loss does not have.
    """
    dimensions: dict[tuple[str, str], int] = {}
    for training in trainings:
        with located(definitions, training):
            try:
                built = facts.built(training.recipe, machine.images_per_pass is not None)
            except UserError as error:
                raise UserError(f"{training.name}: {error.what}", error.remedy) from None
            require_measurable(training.recipe, built.terms)
        dimensions.setdefault((training.dataset, training.method), built.dim)
    return dimensions


def require_measurable(recipe: Recipe, terms: tuple[str, ...]) -> None:
    """Raises UserError if `training.gradient_noise` names none of the terms of the loss, of which the last is
    their sum. Training would raise the same error at its first step."""
    name = recipe.training.gradient_noise
    if name not in (None, *terms):
        raise UserError(
            f"training.gradient_noise: this recipe has no loss term {name!r}.",
            f"Name one of {', '.join(terms[:-1])}, {terms[-1]} for their sum, or null to measure nothing.",
        )


def require_classes(
    definitions: Definitions, labels: Int[np.ndarray, " N"], trainings: Iterable[Training]
) -> None:
    """Raises UserError if train images with these `labels` have too few classes or images for a recipe.
    Training would raise the same error later."""
    from unseen.data.class_split import all_classes, split_classes
    from unseen.data.sampler import make_sampler

    rows = np.arange(len(labels))
    checked: set[tuple[object, ...]] = set()
    for training in trainings:
        batch, settings = training.recipe.batch, training.recipe.training
        if batch.sampling == "tuples":
            continue
        is_published = settings.protocol == "published"
        for seed in training.seeds[:1] if is_published else training.seeds:
            held_out = None if is_published else (settings.validation_share, settings.fold, seed)
            if (key := (batch.model_dump_json(), held_out)) in checked:
                continue
            checked.add(key)
            with located(definitions, training):
                split = (
                    all_classes(rows, labels)
                    if is_published
                    else split_classes(rows, labels, settings.validation_share, seed, settings.fold)
                )
                make_sampler(split.labels, batch, seed)


def require_files(source: Source, dataset: str) -> None:
    """Raises UserError if the folder of a data set's files is empty or missing. The remedy lists the files
    and where to get them.

    Stage ingest checks later that they are the published files.
    """
    for field in type(source).model_fields:
        if field != "path" and field not in PUBLISHED:
            continue
        kind = field if field in PUBLISHED else "cifar100" if source.kind == "collage" else source.kind
        if getattr(source, field) is None:  # a part that this run omits
            continue
        path = Path(getattr(source, field))
        if path.is_file() or _has_visible_entry(path):
            continue
        state = "is empty" if path.is_dir() else "does not exist"
        fetch = f"{missing_data_error(kind, path, state).remedy} " if kind in PUBLISHED else ""
        raise UserError(
            f"{path} {state}.",
            f"{fetch}Put the files there, or set their folder with datasets.{dataset}.source.{field}.",
        )


def _has_visible_entry(path: Path) -> bool:
    return path.is_dir() and any(not entry.name.startswith(".") for entry in path.iterdir())
