"""A search space and the trials drawn from it. The trials depend only on the settings, so that a killed sweep
continues with the same trials.

grid: [a, b]         every value, combined with every value of the other grids
choice: [a, b]       one of the values, drawn per trial
uniform: [a, b]      drawn uniformly from the interval
loguniform: [a, b]   drawn from the interval, uniformly in the logarithm
"""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from unseen.config.definitions import Definitions
from unseen.config.layers import Fields, Layers, dotted
from unseen.config.place import Place
from unseen.config.resolve import sweep_space
from unseen.config.stages import Axis, SweepSettings
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError

Values = dict[str, Any]  # dotted recipe field -> value
_VALIDATIONS = 4  # minimum for the longest trial: the scheduler compares validations
_FIXED = {
    "method": "another method needs its own block under sweep",
    "training.iterations": "set `iterations` of the sweep",
    "training.validation_share": "trials must be evaluated on the same classes",
    "training.protocol": "trials are evaluated on held-out train classes",
    "training.fold": "trials must be evaluated on the same classes",
    "training.selection_metric": "trials must be compared by the same metric",
}


def corners(space: dict[str, Axis]) -> list[Values]:
    """Every combination of the values of grids and choices and of both ends of each range."""
    combinations = itertools.product(*(axis.ends for axis in space.values()))
    return [values_of(space, combination) for combination in combinations]


def values_of(space: dict[str, Axis], combination: Iterable[Any]) -> Values:
    """The values of all fields, tied ones too, for one value of each axis."""
    values: Values = {}
    for (field, axis), value in zip(space.items(), combination, strict=True):
        values |= dict.fromkeys((field, *axis.tied), value)
    return values


def draw(settings: SweepSettings) -> list[Values]:
    """The values of the trials: all combinations of the grids, once, or `trials` times if the space has other
    axes. With `total` = n: n combinations in random order, each again only after all others. Tied fields
    have equal values."""
    grids = {field: axis.grid for field, axis in settings.space.items() if axis.grid is not None}
    random_axes = {field: axis for field, axis in settings.space.items() if axis.grid is None}
    generator = np.random.default_rng(settings.seed)
    combinations = list(itertools.product(*grids.values()))
    if settings.total is None:
        combinations *= settings.trials if random_axes else 1
    else:
        rounds = -(-settings.total // len(combinations))
        order = np.concatenate([generator.permutation(len(combinations)) for _ in range(rounds)])
        combinations = [combinations[place] for place in order[: settings.total]]
    trials = []
    for combination in combinations:
        grid_values = dict(zip(grids, combination, strict=True))
        drawn = [
            grid_values[field] if field in grid_values else _draw_value(axis, generator)
            for field, axis in settings.space.items()
        ]
        trials.append(values_of(settings.space, drawn))
    return trials


def _draw_value(axis: Axis, generator: np.random.Generator) -> Any:
    if axis.choice is not None:
        return axis.choice[int(generator.integers(len(axis.choice)))]
    if axis.loguniform is not None:
        low, high = axis.loguniform
        value = math.exp(generator.uniform(math.log(low), math.log(high)))
    else:
        assert axis.uniform is not None
        value = generator.uniform(*axis.uniform)
    return shortened(value)


def shortened(value: float) -> float:
    """A value of a range with four significant digits, which are easy to type."""
    return float(f"{value:.4g}")


def trial_recipes(
    definitions: Definitions, dataset: str, method: str, settings: SweepSettings, trials: list[Values]
) -> list[Recipe]:
    """The recipe of each trial. Raises UserError as `trial_layers` does."""
    return [layers.recipe() for layers in trial_layers(definitions, dataset, method, settings, trials)]


def trial_layers(
    definitions: Definitions, dataset: str, method: str, settings: SweepSettings, trials: list[Values]
) -> list[Layers]:
    """The layers of each trial. Raises UserError for an invalid value of a field, before the first training.

    Held-out train classes judge a trial, whatever protocol the recipe has. The length of a trial is
    `iterations` of the sweep, else that of the recipe. It has at least four validations.
    """
    where = sweep_space(definitions, method)
    swept = [name for field, axis in settings.space.items() for name in (field, *axis.tied)]
    for field in swept:
        if field in _FIXED:
            raise UserError(
                f"{where}: {field} cannot be swept: {_FIXED[field]}.", "Remove it from the space."
            )
    base = definitions.layers(dataset, method)
    training = base.recipe().training
    iterations = settings.iterations or training.iterations
    length = {
        "training.protocol": "selected",
        "training.iterations": iterations,
        "training.validate_every": max(1, min(training.validate_every, math.ceil(iterations / _VALIDATIONS))),
    }
    every = []
    for values in trials:
        # Each axis alone first, so that the message names the field.
        for field, axis in settings.space.items():
            axis_values = {name: values[name] for name in (field, *axis.tied)}
            trial(base, f"{where}: {field} = {values[field]!r}", length, axis_values).recipe()
        every.append(trial(base, f"{where}: {values}", length, values))
        every[-1].recipe()
    return every


def trial(base: Layers, where: str, length: Fields, values: Fields) -> Layers:
    """The layers of a trial. where: its name in messages."""
    return base.plus(dotted(Place(where), {**length, **values}))
