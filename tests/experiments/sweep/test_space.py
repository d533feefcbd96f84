"""Search spaces: drawn values and refused spaces."""

from pathlib import Path
from typing import Any

import pytest

from tests.params import project
from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.config.resolve import concurrent_trials, sweep_settings
from unseen.config.stages import SweepSettings
from unseen.experiments.catalogue import definitions
from unseen.experiments.plan.files import check, plan
from unseen.experiments.sweep.outputs import adopting_command
from unseen.experiments.sweep.space import draw, trial_recipes
from unseen.runtime.errors import UserError

RATIO = "pooling.transport_ratio"


def space(domains: dict[str, dict[str, Any]], **more: Any) -> SweepSettings:
    return SweepSettings.parse({"space": domains, "iterations": 100, **more})


def test_grids_are_combined_completely_once() -> None:
    settings = space({"a": {"grid": [1, 2]}, "b": {"grid": ["x", "y"]}}, trials=7)
    assert draw(settings) == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}, {"a": 2, "b": "y"}]


def test_draws_are_in_their_domain_and_depend_only_on_the_seed() -> None:
    domains = {
        "a": {"uniform": [0.2, 0.4]},
        "b": {"loguniform": [1e-5, 1e-1]},
        "c": {"choice": ["x", None]},
        "d": {"grid": [1, 2]},
    }
    trials = draw(space(domains, trials=100))
    assert len(trials) == 200
    assert all(0.2 <= trial["a"] <= 0.4 and 1e-5 <= trial["b"] <= 1e-1 for trial in trials)
    assert {trial["c"] for trial in trials} == {"x", None}
    assert 70 < sum(trial["b"] < 1e-3 for trial in trials) < 130, (
        "half of the draws are below the geometric mean"
    )
    assert draw(space(domains, trials=100)) == trials
    assert draw(space(domains, trials=100, seed=1)) != trials


def test_a_total_gives_every_space_as_many_trials() -> None:
    """Combinations of grids are drawn without repetition as long as there are new ones."""
    grids = {"a": {"grid": [1, 2, 3]}, "b": {"grid": [4, 5]}}
    trials = draw(space(grids, total=5))
    assert len(trials) == len({(trial["a"], trial["b"]) for trial in trials}) == 5
    assert draw(space(grids, total=5)) == trials != draw(space(grids, total=5, seed=1))
    mixed = draw(space(grids | {"c": {"uniform": [0.0, 1.0]}}, total=8))
    assert len({(trial["a"], trial["b"]) for trial in mixed[:6]}) == 6
    assert len({trial["c"] for trial in mixed}) == len(mixed) == 8
    assert len(draw(space({"c": {"uniform": [0.0, 1.0]}}, total=3))) == 3
    with pytest.raises(ValueError, match="total: 7 trials, but the grids of the space have 6 combinations"):
        space(grids, total=7)


def test_refuses_seeds_whose_trainings_would_have_different_lengths() -> None:
    grid = {"a": {"grid": [1]}}
    assert space(grid, seeds=[0, 3], scheduler="none").seeds == (0, 3)
    with pytest.raises(ValueError, match="several seeds need scheduler none"):
        space(grid, seeds=[0, 3])
    with pytest.raises(ValueError, match="contains a seed twice"):
        space(grid, seeds=[3, 3], scheduler="none")


def test_a_budget_gives_every_method_the_same_search(tmp_path: Path) -> None:
    own = {"space": {RATIO: {"uniform": [0.1, 0.9]}}, "trials": 20, "iterations": 999, "seed": 7}
    budget = {"total": 3, "seeds": [0, 1]}
    params = definitions(project(tmp_path, {"run.budget": budget, "sweep.gsp": own}))
    searches = [sweep_settings(params, method) for method in ("gsp", "crt")]
    for search in searches:
        assert len(draw(search)) == search.total == 3
        assert (search.seeds, search.scheduler, search.iterations) == ((0, 1), "none", None)
    assert searches[0].seed == 7
    with pytest.raises(UserError, match=r"params\.yaml:\d+.*scheduler: asha stops"):
        sweep_settings(definitions(project(tmp_path, {"run.budget": budget | {"scheduler": "asha"}})), "crt")


STUDY = """mine:
  title: t
  methods:
    a: {like: gsp}
    b: {like: crt, training.patience: PATIENCE}
  datasets: [parts]
  protocol: selected
  search: SEARCH
"""


def rows_of_a_study(folder: Path, search: str, patience: str = "null", **changes: Any) -> Params:
    """params.yaml with the rows of a study with this search in its run."""
    (folder / "studies").mkdir(exist_ok=True)
    text = STUDY.replace("SEARCH", search).replace("PATIENCE", patience)
    (folder / "studies" / "mine.yaml").write_text(text, encoding="utf-8")
    rows = ["mine-a", "mine-b"]
    return project(folder, {"run.methods": rows, "run.sweeps": rows, **changes})


def test_a_search_gives_every_row_of_a_study_the_same_trials(tmp_path: Path) -> None:
    rate = "{optimizer.learning_rate: {loguniform: [1.0e-5, 1.0e-3]}}"
    search = f"{{total: 3, iterations: 40, seeds: [0, 1], space: {rate}}}"
    other = {"sweep.gsp": {"space": {RATIO: {"grid": [0.1, 0.2]}}, "seed": 7}, "run.budget": {"total": 2}}
    run = plan(rows_of_a_study(tmp_path, search, **other, **{"sweep.mine-b": {"concurrent": 2}}))
    assert run.swept() == [("parts", "mine-a"), ("parts", "mine-b")]
    first, second = (run.trials("parts", row) for row in ("mine-a", "mine-b"))
    assert len(first) == 3
    assert [values for values, _ in first] == [values for values, _ in second]
    assert {recipe.training.iterations for _, recipe in (*first, *second)} == {40}
    settings = [run.sweeps[row] for row in ("mine-a", "mine-b")]
    assert settings[0].model_copy(update={"concurrent": 2}) == settings[1]
    assert (settings[0].scheduler, settings[0].seeds, settings[0].seed) == ("none", (0, 1), 0)
    # a stage reads no studies
    stage = Definitions(Params(tmp_path / "params.yaml"))
    assert [concurrent_trials(stage, row) for row in ("mine-a", "mine-b")] == [1, 2]


def test_a_search_without_a_space_has_that_of_the_method(tmp_path: Path) -> None:
    run = plan(rows_of_a_study(tmp_path, "{total: 2}"))
    assert set(run.sweeps["mine-a"].space) == set(sweep_settings(Definitions(Params(text="")), "gsp").space)
    assert [len(run.trials("parts", row)) for row in ("mine-a", "mine-b")] == [2, 2]


@pytest.mark.parametrize(
    ("search", "patience", "message"),
    [
        ("{total: 99}", "null", r"mine.yaml:8: mine.search: total: 99 trials, .* \(row mine-b\)"),
        (
            "{total: 2, space: {loss.no: {grid: [1, 2]}}}",
            "null",
            r"mine.yaml:8: mine.search.space: loss.no = ",
        ),
        (
            "{total: 2}",
            "3",
            r"mine.yaml:8: mine.search: training.patience of mine-a on parts is None, .* is 3",
        ),
    ],
)
def test_refuses_a_search_that_is_not_possible_or_not_equal(
    search: str, patience: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        check(plan(rows_of_a_study(tmp_path, search, patience)))


def test_refuses_other_settings_of_the_search_of_a_row(tmp_path: Path) -> None:
    changes = {"sweep.mine-a": {"total": 9}}
    with pytest.raises(UserError, match=r"sweep.mine-a.total is not a setting"):
        plan(rows_of_a_study(tmp_path, "{total: 2}", **changes))


def test_the_best_values_of_a_row_are_not_an_argument(tmp_path: Path) -> None:
    params = definitions(rows_of_a_study(tmp_path, "{total: 2}"))
    text = adopting_command(params, "parts", "mine-a", {RATIO: 0.3})
    assert text == "the recipe of row mine-a in the file of its study: pooling.transport_ratio: 0.3"


def test_a_range_of_logarithms_starts_above_zero() -> None:
    with pytest.raises(ValueError, match=r"optimizer\.learning_rate`\n.*loguniform starts at 0"):
        space({"optimizer.learning_rate": {"loguniform": [0, 1]}})


def test_tied_fields_have_the_value_of_their_axis(params: Definitions) -> None:
    """Branches of CRT with shared weights have equal prototypes (table 9), so a space must vary both
    together."""
    tied = space({"embedding.prototypes": {"grid": [4, 16], "tied": ["auxiliary.prototypes"]}})
    recipes = trial_recipes(params, "cub", "crt", tied, draw(tied))
    assert [(recipe.embedding.prototypes, recipe.auxiliary.prototypes) for recipe in recipes] == [
        (4, 4),
        (16, 16),
    ]
    with pytest.raises(ValueError, match="a field belongs to one axis"):
        space({"a": {"grid": [1], "tied": ["b"]}, "b": {"grid": [1]}})


def test_a_trial_has_the_length_of_the_sweep_and_four_validations(params: Definitions) -> None:
    settings = space({RATIO: {"grid": [0.1, 0.6]}})
    recipes = trial_recipes(params, "parts", "gsp", settings, draw(settings))
    assert [recipe.pooling.transport_ratio for recipe in recipes] == [0.1, 0.6]
    assert {(recipe.training.iterations, recipe.training.validate_every) for recipe in recipes} == {(100, 25)}


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        (
            "pooling.transport_ration",
            [0.1],
            r"params\.yaml:\d+: sweep\.gsp\.space: pooling\.transport_ration = 0\.1: .*is not a setting",
        ),
        (
            "training.selection_metric",
            ["map_at_r"],
            "cannot be swept: trials must be compared by the same metric",
        ),
        (
            "training.protocol",
            ["selected", "refit"],
            "cannot be swept: trials are evaluated on held-out train classes",
        ),
        ("training.iterations", [10], "cannot be swept: set `iterations` of the sweep"),
    ],
)
def test_refuses_fields_and_values_without_a_valid_recipe(
    params: Definitions, field: str, values: list[Any], message: str
) -> None:
    settings = space({field: {"grid": values}})
    with pytest.raises(UserError, match=message):
        trial_recipes(params, "parts", "gsp", settings, draw(settings))
