"""A search space and the trials drawn from it: a pure function of the settings, so that a killed sweep goes
on with the same trials.

grid: [a, b]         every value, combined with every value of the other grids
choice: [a, b]       one of them, drawn per trial
uniform: [a, b]      drawn from the interval
loguniform: [a, b]   its logarithm drawn from the interval of logarithms
"""

import itertools
import math
from typing import Any

import numpy as np

from pipeline.config import Params, Recipe, SweepSettings, resolve
from pipeline.config.stages import Axis
from pipeline.runtime.errors import UserError

Values = dict[str, Any]  # dotted recipe field -> value
_VALIDATIONS = 4  # of the longest trial, at least: a scheduler needs something to judge by
_FIXED = {
    "method": "sweep another method with a block of its own",
    "training.iterations": "set `iterations` of the sweep",
    "training.validation_share": "trials must be judged on the same classes",
    "training.fold": "trials must be judged on the same classes",
    "training.selection_metric": "trials must be judged by the same metric",
}


def draw(settings: SweepSettings) -> list[Values]:
    """The trials: all combinations of the grids, `trials` times where anything is drawn besides. Tied fields
    have equal values."""
    grids = {field: axis.grid for field, axis in settings.space.items() if axis.grid is not None}
    drawn = {field: axis for field, axis in settings.space.items() if axis.grid is None}
    generator = np.random.default_rng(settings.seed)
    trials = []
    for _ in range(settings.trials if drawn else 1):
        for combination in itertools.product(*grids.values()):
            chosen = dict(zip(grids, combination, strict=True))
            values = {
                field: chosen[field] if field in chosen else _drawn(drawn[field], generator)
                for field in settings.space
            }
            trials.append(
                {
                    name: values[field]
                    for field, axis in settings.space.items()
                    for name in (field, *axis.tied)
                }
            )
    return trials


def _drawn(axis: Axis, generator: np.random.Generator) -> Any:
    if axis.choice is not None:
        return axis.choice[int(generator.integers(len(axis.choice)))]
    if axis.loguniform is not None:
        low, high = axis.loguniform
        return float(
            f"{math.exp(generator.uniform(math.log(low), math.log(high))):.4g}"
        )  # four digits can be typed
    assert axis.uniform is not None
    return float(f"{generator.uniform(*axis.uniform):.4g}")


def trial_recipes(
    params: Params, dataset: str, method: str, settings: SweepSettings, trials: list[Values]
) -> list[Recipe]:
    """The recipe of each trial, all valid; or UserError naming the field and the value that is not valid,
    before anything starts.

    A trial has `iterations` of the sweep (those of the recipe, where the sweep has none) and validates at
    least four times.
    """
    where = (
        params.label if (line := params.line(f"sweep.{method}.space")) is None else f"{params.label}:{line}"
    )
    for field in (name for name, axis in settings.space.items() for name in (name, *axis.tied)):
        if field in _FIXED:
            raise UserError(
                f"{where}: sweep.{method}.space: {field} cannot be swept: {_FIXED[field]}.",
                "Remove it from the space.",
            )
    base = resolve(params, dataset, method).training
    iterations = settings.iterations or base.iterations
    length = {
        "training.iterations": iterations,
        "training.validate_every": max(1, min(base.validate_every, math.ceil(iterations / _VALIDATIONS))),
    }
    recipes = []
    for values in trials:
        for (
            field,
            axis,
        ) in settings.space.items():  # one axis at a time first, so that the message names the field
            alone = {name: values[name] for name in (field, *axis.tied)}
            _resolved(
                params,
                dataset,
                method,
                {**length, **alone},
                f"{where}: sweep.{method}.space: {field} = {values[field]!r}",
            )
        recipes.append(
            _resolved(
                params, dataset, method, {**length, **values}, f"{where}: sweep.{method}.space: {values}"
            )
        )
    return recipes


def _resolved(params: Params, dataset: str, method: str, overrides: Values, where: str) -> Recipe:
    try:
        return resolve(params, dataset, method, overrides)
    except UserError as error:
        raise UserError(f"{where} makes no recipe: {error.what.split(': ', 1)[-1]}", error.remedy) from None
