"""Every benchmark can be imported, and the recipes that it measures exist."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pipeline.config import Params, Recipe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"


def benchmark(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(FOLDER)  # for `timing`
    monkeypatch.setattr(sys, "argv", [name])
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_benchmark_can_be_imported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert benchmark(name, monkeypatch).__doc__


def test_the_recipes_of_step_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    step = benchmark("step", monkeypatch)
    params = Params(ROOT / "params.yaml")
    for method in step.METHODS:
        recipe: Recipe = step._recipe(params, method, 16)
        assert recipe.batch.size == 16, method


def test_the_recipe_of_ray_overhead_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmark("ray_overhead", monkeypatch)
    recipe: Recipe = module.recipe()
    assert recipe.training.iterations > 0
