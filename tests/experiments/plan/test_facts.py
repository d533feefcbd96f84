"""Facts of a recipe: those that its networks have, which are kept until recipe, code or library change."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.params import project, resolve
from unseen.config.document import Params
from unseen.experiments.plan import facts as module
from unseen.experiments.plan.facts import FOLDER, Facts
from unseen.methods import compatibility
from unseen.methods.cost import cost_of
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.training.cost import step_cost

RESOLVE = """
import sys
from unseen.stages.resolve import run
run()
print("torch" in sys.modules)
"""


def recipe(**changes: Any) -> Recipe:
    small = {
        "backbone.name": "test_resnet",
        "backbone.pretrained": False,
        "input.size": 32,
        "input.resize": 36,
    }
    return resolve(Params(text=""), "parts", "ms", small | changes)


def facts() -> Facts:
    """As a new process has them."""
    return Facts(FOLDER)


@pytest.fixture
def builds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes for which a network is built."""
    built: list[Recipe] = []

    def require_compatible(recipe: Recipe) -> Any:
        built.append(recipe)
        return original(recipe)

    original = compatibility.require_compatible
    monkeypatch.setattr(compatibility, "require_compatible", require_compatible)
    return built


def test_the_facts_are_those_of_the_network(builds: list[Recipe]) -> None:
    for _ in range(2):
        known = facts()
        assert known.built(recipe(dim=24), False).dim == 24
        assert known.built(recipe(dim=24), False).terms == ("multi_similarity", "loss")
        assert known.cost(recipe(dim=24)) == cost_of(recipe(dim=24))
    assert len(builds) == 1


@pytest.mark.slow
def test_the_cost_of_a_step_does_not_depend_on_the_length_of_training(folder: Path) -> None:
    small = {"batch.classes": 2, "batch.images_per_class": 2}
    first = facts().step(recipe(**small), 4, 20)
    assert first == step_cost(recipe(**small), 4, 20)
    (kept,) = (folder / FOLDER).rglob("*.json")
    before = kept.stat().st_mtime_ns
    assert facts().step(recipe(**small, **{"training.iterations": 7}), 4, 20) == first
    assert kept.stat().st_mtime_ns == before
    assert [*(folder / FOLDER).rglob("*.json")] == [kept]


def test_a_change_of_recipe_library_code_or_use_is_built_again(
    builds: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts().built(recipe(), False)
    facts().built(recipe(**{"training.iterations": 7, "optimizer.learning_rate": 0.5}), False)
    assert len(builds) == 1
    facts().built(recipe(**{"loss.threshold": 0.3}), False)
    with pytest.raises(UserError, match="statistics of the whole batch"):
        facts().built(recipe(**{"backbone.batch_norm": "batch"}), True)
    assert len(builds) == 3
    monkeypatch.setattr(module, "version", lambda library: f"new {library}")
    facts().built(recipe(), False)
    assert len(builds) == 4
    monkeypatch.setattr(module.Code, "closure", lambda code, modules: dict.fromkeys(modules, "new"))
    facts().built(recipe(), False)
    assert len(builds) == 5


def test_an_error_is_not_kept(builds: list[Recipe]) -> None:
    for _ in range(2):
        with pytest.raises(UserError, match="test_resnot"):
            facts().built(recipe(**{"backbone.name": "test_resnot"}), False)
    assert len(builds) == 2
    assert not FOLDER.exists()


def test_the_memory_is_checked_before_the_import_of_torch(
    builds: list[Recipe], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts().built(recipe(), False)

    def require_memory(least: int) -> None:
        raise UserError(f"{least} bytes are missing.", "Raise the limit.")

    monkeypatch.setattr(module, "require_memory", require_memory)
    assert facts().built(recipe(), False).dim == recipe().dim
    with pytest.raises(UserError, match="bytes are missing"):
        facts().built(recipe(dim=7), False)
    assert len(builds) == 1


@pytest.mark.slow
def test_the_second_resolve_imports_no_torch_and_writes_the_same_bytes(folder: Path) -> None:
    project(folder, {"run.methods": ["ms", "gsp"]})
    written = []
    for imports_torch in (True, False):
        done = subprocess.run(
            [sys.executable, "-c", RESOLVE], cwd=folder, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == [str(imports_torch)]
        files = sorted((folder / "data/resolved").rglob("*.json"))
        written.append({path.relative_to(folder).as_posix(): path.read_bytes() for path in files})
    assert written[0] == written[1]
    costs = json.loads((folder / "data/resolved/report.json").read_text(encoding="utf-8"))["settings"][
        "costs"
    ]
    assert costs["parts"]["ms"]["parameters"] > 0
