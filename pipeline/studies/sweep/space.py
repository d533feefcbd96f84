"""A search space and the trials drawn from it: a pure function of the settings, so that a killed sweep goes on with the same trials.

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
    """The trials: all combinations of the grids, `trials` times where something is drawn besides."""
    for field, domain in settings.space.items():
        if "loguniform" in domain and domain["loguniform"][0] <= 0:
            raise UserError(f"params.yaml: the sweep's space: {field}.loguniform starts at {domain['loguniform'][0]}.", "Let it start above 0.")
    grids = {field: domain["grid"] for field, domain in settings.space.items() if "grid" in domain}
    drawn = {field: domain for field, domain in settings.space.items() if "grid" not in domain}
    generator = np.random.default_rng(settings.seed)
    found = []
    for _ in range(settings.trials if drawn else 1):
        for combination in itertools.product(*grids.values()):
            chosen = dict(zip(grids, combination, strict=True))
            found.append({field: chosen[field] if field in chosen else _one(drawn[field], generator) for field in settings.space})
    return found


def _one(domain: dict[str, list[Any]], generator: np.random.Generator) -> Any:
    kind, values = next(iter(domain.items()))
    if kind == "choice":
        return values[int(generator.integers(len(values)))]
    low, high = (float(value) for value in values)
    if kind == "loguniform":
        return float(f"{math.exp(generator.uniform(math.log(low), math.log(high))):.4g}")  # four digits say what a person can adopt
    return float(f"{generator.uniform(low, high):.4g}")


def recipes(params: Params, dataset: str, method: str, settings: SweepSettings, trials: list[Values]) -> list[Recipe]:
    """The recipe of each trial, all valid, or UserError naming the field and the value that is not: before anything starts.

    A trial has `iterations` of the sweep and validates at least four times.
    """
    where = params.path if (line := params.line(f"sweep.{method}.space")) is None else f"{params.path}:{line}"
    for field in settings.space:
        if field in _FIXED:
            raise UserError(f"{where}: sweep.{method}.space: {field} cannot be swept: {_FIXED[field]}.", "Remove it from the space.")
    base = resolve(params, dataset, method).training
    length = {
        "training.iterations": settings.iterations,
        "training.validate_every": min(base.validate_every, math.ceil(settings.iterations / _VALIDATIONS)),
    }
    found = []
    for values in trials:
        for field, value in values.items():  # one by one first, so that the message names the field
            _resolved(params, dataset, method, {**length, field: value}, f"{where}: sweep.{method}.space: {field} = {value!r}")
        found.append(_resolved(params, dataset, method, {**length, **values}, f"{where}: sweep.{method}.space: {values}"))
    return found


def _resolved(params: Params, dataset: str, method: str, overrides: Values, where: str) -> Recipe:
    try:
        return resolve(params, dataset, method, overrides)
    except UserError as error:
        raise UserError(f"{where} makes no recipe: {error.what.split(': ', 1)[-1]}", error.remedy) from None
