"""Values that Optuna proposes: their rounds, their recipes, and the spaces that it refuses."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.params import project
from unseen.config.definitions import Definitions
from unseen.config.inputs import Trial
from unseen.config.resolve import sweep_settings
from unseen.config.stages import Search
from unseen.experiments.catalogue import definitions
from unseen.experiments.plan.files import check, plan
from unseen.experiments.sweep.proposals import Proposals
from unseen.experiments.sweep.space import Values, corners, trial_recipes
from unseen.runtime.errors import UserError

RATIO, RATE = "pooling.transport_ratio", "optimizer.learning_rate"
SPACE = {
    RATIO: {"uniform": [0.1, 0.9]},
    RATE: {"loguniform": [1e-5, 1e-1]},
    "loss.name": {"choice": ["contrastive", "multi_similarity"]},
    "dim": {"grid": [8, 16]},
}
OPTUNA = {"searcher": "optuna", "scheduler": "none"}


def search(space: dict[str, Any] = SPACE, **more: Any) -> Search:
    return Search.parse({"space": space, "iterations": 100, "total": 14, **OPTUNA, **more})


def proposed(
    params: Definitions, settings: Search, score: Callable[[Values], float | None]
) -> list[list[Trial]]:
    """The rounds of a search."""
    values = corners(settings.space)
    recipes = trial_recipes(params, "parts", "gsp", settings, values)
    known = [Trial(values=value, recipe=recipe) for value, recipe in zip(values, recipes, strict=True)]
    pytest.importorskip("optuna")
    proposals = Proposals(settings, known)
    rounds = [proposals.next([])]
    while rounds[-1]:
        rounds.append(proposals.next([score(trial.values) for trial in rounds[-1]]))
    return rounds[:-1]


def by_ratio(values: Values) -> float:
    return -((values[RATIO] - 0.7) ** 2)


def test_rounds_depend_on_the_seed_and_the_scores(params: Definitions) -> None:
    space = {RATIO: SPACE[RATIO]}
    rounds = proposed(params, search(space), by_ratio)
    assert [len(trials) for trials in rounds] == [5, 4, 4, 1]
    assert proposed(params, search(space), by_ratio) == rounds
    assert proposed(params, search(space, seed=1), by_ratio)[0] != rounds[0]
    opposite = proposed(params, search(space), lambda values: -by_ratio(values))
    assert opposite[0] == rounds[0]
    assert opposite[1] != rounds[1]
    failed = proposed(params, search(space), lambda values: None)
    assert [len(trials) for trials in failed] == [5, 4, 4, 1]


def test_later_rounds_approach_the_best_value(params: Definitions) -> None:
    settings = search({RATIO: SPACE[RATIO]}, total=40, seed=1)
    rounds = [[trial.values[RATIO] for trial in trials] for trials in proposed(params, settings, by_ratio)]
    assert all(0.1 <= ratio <= 0.9 for ratios in rounds for ratio in ratios)
    errors = [abs(ratio - 0.7) for ratios in rounds for ratio in ratios]
    assert np.median(errors[10:]) < 0.6 * np.median(errors[:10])


def test_a_proposal_has_the_recipe_that_its_values_give(params: Definitions) -> None:
    """Also where a choice names another part, whose fields differ."""
    settings = search()
    trials = [trial for trials in proposed(params, settings, by_ratio) for trial in trials]
    assert {trial.recipe.loss.name for trial in trials} == {"contrastive", "multi_similarity"}
    expected = trial_recipes(params, "parts", "gsp", settings, [trial.values for trial in trials])
    assert [trial.recipe for trial in trials] == expected


def test_values_repeat_only_after_all_others(params: Definitions) -> None:
    grid = {"dim": {"grid": [8, 16, 24, 32], "tied": ["pooling.prototypes"]}}
    rounds = proposed(params, search(grid, total=4), lambda values: float(values["dim"]))
    values = [trial.values for trials in rounds for trial in trials]
    assert {(value["dim"], value["pooling.prototypes"]) for value in values} == {
        (size, size) for size in (8, 16, 24, 32)
    }


def test_resolve_checks_the_corners_of_the_space(tmp_path: Path) -> None:
    space = {RATIO: {"uniform": [0.1, 1.9]}, "pooling.prototypes": {"choice": [16, 32]}}
    block = {"space": space, "total": 3, **OPTUNA}
    assert [tuple(values.values()) for values in corners(search(space).space)] == [
        (0.1, 16),
        (0.1, 32),
        (1.9, 16),
        (1.9, 32),
    ]
    changes = {"run.sweeps": ["gsp"], "sweep.gsp": block}
    with pytest.raises(UserError, match=r"sweep\.gsp\.space: pooling\.transport_ratio = 1\.9"):
        plan(project(tmp_path, changes)).trials("parts", "gsp")


def test_resolve_names_the_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = {"run.budget": {"total": 2, "searcher": "optuna"}, "run.sweeps": ["gsp"]}
    run = plan(project(tmp_path, budget))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"package optuna is not installed.*\s+.*pip install 'unseen\[optuna\]'"
    ):
        check(run)


@pytest.mark.parametrize(("budget", "searcher"), [({"searcher": "optuna"}, "optuna"), ({}, None)])
def test_a_budget_gives_every_method_its_searcher(
    budget: dict[str, str], searcher: str | None, tmp_path: Path
) -> None:
    own = {"space": {RATIO: {"uniform": [0.1, 0.9]}}, **OPTUNA}
    params = definitions(project(tmp_path, {"run.budget": {"total": 2, **budget}, "sweep.gsp": own}))
    assert [sweep_settings(params, method).searcher for method in ("gsp", "crt")] == [searcher, searcher]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheduler": "asha"}, "and so does searcher optuna"),
        (
            {"space": {"a": {"choice": list(range(10_001))}}},
            "the sweep has 10,001 corners of its space, at most 10,000",
        ),
    ],
)
def test_refuses_searches_that_cannot_be_repeated_or_checked(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(**changes)
