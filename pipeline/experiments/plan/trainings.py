"""The trainings of a run: of its methods, of the trials of its sweeps, of the folds of its ensembles. Stage
`resolve` checks the recipe of each."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from unseen.config.command import field_origins
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.layers import Layers
from unseen.config.resolve import sweep_space
from unseen.config.stages import EnsembleSettings, SweepSettings
from unseen.experiments.folds.members import fold
from unseen.experiments.sweep.space import Values
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError


@dataclass(frozen=True)
class Training:
    """The trainings of one recipe."""

    dataset: str
    method: str
    recipe: Recipe
    seeds: tuple[int, ...]
    place: str = ""  # which trial or fold, and the line that defines it
    remedy: str = ""  # what to change there
    fields: tuple[str, ...] = ()  # of the recipe, that a sweep sets
    is_trial: bool = False

    @property
    def name(self) -> str:
        return f"{self.method} on {self.dataset}"


def of_trials(
    definitions: Definitions,
    dataset: str,
    method: str,
    sweep: SweepSettings,
    trials: list[tuple[Values, Recipe]],
) -> Iterator[Training]:
    """The trainings of a sweep."""
    where = sweep_space(definitions, method)
    for values, recipe in trials:
        yield Training(
            dataset,
            method,
            recipe,
            sweep.seeds or (sweep.seed,),
            place=f"{where}, trial {values}: ",
            remedy=f"{where.rpartition(' ')[2]} sets the values of a trial.",
            fields=tuple(values),
            is_trial=True,
        )


def of_folds(
    params: Params, dataset: str, method: str, layers: Layers, ensemble: EnsembleSettings
) -> Iterator[Training]:
    """The trainings of an ensemble. Which classes a fold contains does not depend on the seed."""
    key, folds = "ensemble.folds", len(ensemble.folds)
    for model in ensemble.folds:
        yield Training(
            dataset,
            method,
            fold(layers, model, folds).recipe(),
            ensemble.seeds[:1],
            place=f"{params.where(key)}, model {model} of {folds} of {method} on {dataset}: ",
            remedy=f"A model is trained without its fold: more folds in {key} leave more classes.",
        )


@contextlib.contextmanager
def located(definitions: Definitions, training: Training) -> Iterator[None]:
    """Adds to a UserError about the recipe of `training` which trial or fold it is, and the line.

    For a field that the trial does not set, it adds the layer of the recipe that sets it.
    """
    try:
        yield
    except UserError as error:
        remedy = f"{error.remedy} {training.remedy}".rstrip()
        complete = UserError(f"{training.place}{error.what}", remedy)
        if any(name in error.remedy for name in training.fields):
            raise complete from error.__cause__
        with field_origins(definitions, training.dataset, training.method):
            raise complete from error.__cause__
