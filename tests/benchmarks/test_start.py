"""Every benchmark can be imported and starts without arguments, and the recipes that it measures exist."""

import ast
import contextlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from unseen.config.document import Params
from unseen.methods.settings import Recipe

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


class Measuring(Exception):
    """A benchmark has read its arguments and measures."""


def raise_measuring(*arguments: object, **keywords: object) -> None:
    raise Measuring


def test_make_bench_runs_the_files_of_the_folder() -> None:
    command = re.search(r"for file in (\S+); do", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert command is not None
    assert sorted(ROOT.glob(command[1])) == sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", sorted({path.stem for path in FOLDER.glob("*.py")} - {"timing"}))
def test_every_benchmark_starts_without_arguments(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make bench` gives no arguments. Each function that a benchmark calls in `main` to measure raises."""
    module = benchmark(name, monkeypatch)
    for key, value in vars(module).items():
        defined_here = getattr(value, "__module__", "") in (module.__name__, "timing")
        if callable(value) and defined_here and key != "main":
            monkeypatch.setattr(module, key, raise_measuring)
    monkeypatch.setattr("subprocess.run", raise_measuring)
    monkeypatch.setattr("torch.set_num_threads", contextlib.suppress)  # the number of this process remains
    with pytest.raises(Measuring):
        module.main()


def test_ratios_of_make_bench_replace_those_of_the_same_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = benchmark("timing", monkeypatch)
    monkeypatch.setattr(timing, "RESULTS", tmp_path / "ignored")
    (tmp_path / "ignored").mkdir()
    timing.save("gsp", {}, {"a": timing.Ratio(1.0)})
    file = tmp_path / "results.json"
    assert not file.exists()
    monkeypatch.setenv("RATIOS", str(file))
    for name, value in (("gsp", 2.0), ("evaluation", 0.51234), ("gsp", 1.71828)):
        timing.save(name, {"seconds": 1}, {f"ratio {value:.0f}": timing.Ratio(value, at_least=1.5)})
    assert json.loads(file.read_text(encoding="utf-8")) == {
        "evaluation": {"ratio 1": {"ratio": 0.512, "at_least": 1.5}},
        "gsp": {"ratio 2": {"ratio": 1.72, "at_least": 1.5}},
    }


def saved_names(path: Path) -> list[str]:
    """A regular expression for the name of each call of `timing.save` with ratios."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "save" and len(node.args) == 3:
            parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
            names.append(
                "".join(re.escape(str(p.value)) if isinstance(p, ast.Constant) else ".+" for p in parts)
            )
    return names


@pytest.mark.parametrize("name", sorted({path.stem for path in FOLDER.glob("*.py")} - {"timing"}))
def test_every_benchmark_saves_ratios(name: str) -> None:
    assert saved_names(FOLDER / f"{name}.py")


def test_the_ratios_in_git_are_those_that_make_bench_writes() -> None:
    patterns = [pattern for path in FOLDER.glob("*.py") for pattern in saved_names(path)]
    results = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    unknown = [name for name in results if not any(re.fullmatch(pattern, name) for pattern in patterns)]
    assert not unknown


def test_evaluation_measures_two_sets_two_dimensions_and_two_networks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = benchmark("evaluation", monkeypatch)
    cases = {(case.rows, case.dim, case.noise == module.UNTRAINED) for case in module.CASES.values()}
    assert len(cases) == len(module.CASES) == 8
    for case in module.CASES.values():
        assert case.at_most <= 1.0
        counts = module.class_sizes(case.rows, case.relevant, np.random.default_rng(0))
        assert counts.sum() == case.rows
        least, most = (2, 12) if case.relevant is None else (59, 60)
        assert (counts.min(), counts.max()) == (least, most)


def test_the_noise_of_evaluation_is_that_of_128_dimensions_without_an_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Recall at 1 is below 1 in 512 dimensions, where noise 1.3 solves the data."""
    module = benchmark("evaluation", monkeypatch)
    assert module.usual_noise(128) == pytest.approx(1.3)
    recalls = []
    for noise in (1.3, module.usual_noise(512)):
        rows = module.embeddings(6000, 512, noise)
        queries = module.Rows(*(column[:500] for column in rows))
        recalls.append(module.averages(module.per_query(queries, rows, (1,)))["recall_at_1"])
    assert recalls[0] == 1.0
    assert 0.9 < recalls[1] < 1.0


def test_the_recipes_of_step_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    step = benchmark("step", monkeypatch)
    params = Params(ROOT / "params.yaml")
    for method in step.METHODS:
        recipe: Recipe = step._recipe(params, method, 16, compiled=False)
        assert recipe.batch.size == 16, method


def test_the_recipe_of_ray_overhead_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    module = benchmark("ray_overhead", monkeypatch)
    recipe: Recipe = module.recipe()
    assert recipe.training.iterations > 0
