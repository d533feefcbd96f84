"""Values of trials that Optuna proposes from the scores of the rounds before, by its tree-structured Parzen
estimator (Bergstra et al., Algorithms for Hyper-Parameter Optimization, 2011).

They depend only on the settings and the scores, not on the number of trials side by side or the order in
which they end: a resumed sweep gets the same values again.
"""

import importlib.util
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from unseen.config.inputs import Trial
from unseen.config.layers import Layers, Patch
from unseen.config.place import Place
from unseen.config.stages import Axis, Search
from unseen.experiments.sweep.space import Values, shortened, trial, values_of
from unseen.runtime.errors import UserError

_MOST_RANDOM, _ROUND = 10, 4  # trials of the first round, of each later one


def require_optuna(where: str) -> None:
    """Raises UserError if the package is not installed. where: the place of the space of a sweep."""
    if importlib.util.find_spec("optuna") is None:
        raise UserError(
            f"{where} is searched by optuna, but the package optuna is not installed.",
            "Install it: pip install 'unseen[optuna]'",
        )


class Proposals:
    """The rounds of a sweep. corners: the recipes at all corners of the space."""

    def __init__(self, settings: Search, corners: Sequence[Trial]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._left = settings.space, settings.count
        self._size = min(_MOST_RANDOM, -(-settings.count // 3))
        sampler = optuna.samplers.TPESampler(seed=settings.seed, n_startup_trials=self._size)
        self._study: Any = optuna.create_study(sampler=sampler, direction="maximize")
        self._corners = {_key(corner.values): corner for corner in corners}
        self._order = np.random.default_rng(settings.seed).permutation(list(self._corners))
        self._proposed: set[str] = set()
        self._asked: list[Any] = []

    def next(self, scores: Sequence[float | None]) -> list[Trial]:
        """The trials of the next round, empty after the last. scores: of the trials of the round before, None
        for one that failed; to be maximized."""
        for asked, score in zip(self._asked, scores, strict=True):
            self._tell(asked, score)
        size, self._size = min(self._left, self._size), _ROUND
        self._left, self._asked = self._left - size, []
        return [self._trial() for _ in range(size)]

    def _trial(self) -> Trial:
        """A trial with new values; a corner replaces values that repeat, if one is left."""
        asked, values = self._ask()
        unused = next((key for key in self._order if key not in self._proposed), None)
        if _key(values) in self._proposed and unused is not None:
            self._tell(asked, None)
            corner = self._corners[unused].values
            self._study.enqueue_trial({f: _parameter(axis, corner[f]) for f, axis in self._space.items()})
            asked, values = self._ask()
        self._proposed.add(_key(values))
        self._asked.append(asked)
        # of the corner with the same grids and choices
        ends = [values[f] if axis.bounds is None else axis.ends[0] for f, axis in self._space.items()]
        recipe = self._corners[_key(values_of(self._space, ends))].recipe
        base = Layers(recipe.method, (Patch(Place("a corner"), recipe.model_dump(mode="json")),))
        return Trial(values=values, recipe=trial(base, f"The sweep: {values}", {}, values).recipe())

    def _ask(self) -> tuple[Any, Values]:
        """A trial of Optuna, and its values. A value of a grid or a choice is a category, as JSON."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution

        distributions = {
            field: CategoricalDistribution([json.dumps(value) for value in axis.ends])
            if axis.bounds is None
            else FloatDistribution(*axis.bounds, log=axis.loguniform is not None)
            for field, axis in self._space.items()
        }
        asked = self._study.ask(distributions)
        drawn = [asked.params[field] for field in self._space]
        values = [shortened(value) if isinstance(value, float) else json.loads(value) for value in drawn]
        return asked, values_of(self._space, values)

    def _tell(self, asked: Any, score: float | None) -> None:
        from optuna.trial import TrialState

        self._study.tell(asked, score, TrialState.FAIL if score is None else TrialState.COMPLETE)


def _parameter(axis: Axis, value: Any) -> Any:
    return json.dumps(value) if axis.bounds is None else value


def _key(values: Values) -> str:
    return json.dumps(values, sort_keys=True)
