"""Parts from outside the project: their settings, errors and code, and whose import is refused."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from unseen.config.definitions import Definitions
from unseen.config.document import Params
from unseen.experiments.plan.code import code_of
from unseen.experiments.plan.files import modules_of, position_modules_of
from unseen.frozen.head import head
from unseen.methods import modules
from unseen.methods.compatibility import require_compatible
from unseen.methods.settings import Recipe, parse_recipe
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted

LOSS = """
from torch import nn
from unseen.runtime.settings import Strict
from .helper import scaled

class Circle(nn.Module):
    def __init__(self, dim: int, gamma: float, orders: tuple[int, ...] = (1, 2)) -> None:
        super().__init__()
        self.dim, self.gamma, self.orders = dim, gamma, orders

    def forward(self, embeddings, labels):
        return scaled(embeddings.sum(), self.gamma)

class Power(nn.Module):
    projects = True

    class Settings(Strict):
        exponent: float = 2.0

    def __init__(self, channels, exponent):
        super().__init__()
        self.channels, self.exponent = channels, exponent
"""
NETWORK = """
from torch import nn
from unseen.networks.staged import Staged

class Conv2(Staged):
    plan, channels = (("first",), ("second",)), (4, 8)
    default_cfg = {"classifier": (), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}

    def __init__(self, kernel: int = 3) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, kernel), nn.Conv2d(4, 8, kernel)
"""
METHOD = """
from unseen.methods.embedding import EmbeddingMethod
from unseen.methods.settings import OutsideRecipe
from .helper import scaled

class Compact(EmbeddingMethod):
    positions = "outside.shares:shares"

    class Settings(OutsideRecipe):
        dim: int = 8
        weight: float

    def __init__(self, recipe, classes, samples):
        super().__init__(recipe, classes, samples)
        self.weight = recipe.weight

    def terms(self, outputs, labels, samples, observed):
        terms = super().terms(outputs, labels, samples, observed)
        return terms | {"compact": scaled(outputs.embedding.square().mean(), self.weight)}
"""
CLASS = "outside.circle:Circle"
HEAD = "methods:\n  mine:\n    like: ms\n    loss:\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with package `outside`."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/circle.py").write_text(LOSS, encoding="utf-8")
    (tmp_path / "outside/network.py").write_text(NETWORK, encoding="utf-8")
    (tmp_path / "outside/method.py").write_text(METHOD, encoding="utf-8")
    (tmp_path / "outside/helper.py").write_text("def scaled(x, by):\n    return x * by\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unseen.runtime.parts._classes", {})
    return tmp_path


def resolved(*lines: str) -> Recipe:
    text = HEAD + "".join(f"      {line}\n" for line in lines)
    return Definitions(Params(text=text)).layers("cub", "mine").recipe()


def test_the_settings_are_the_arguments_of_the_class() -> None:
    recipe = resolved("module: outside.circle.Circle", "gamma: 80")
    assert recipe.loss.model_dump() == {"module": CLASS, "gamma": 80.0, "orders": (1, 2)}
    values: dict[str, Any] = recipe.model_dump(mode="json")
    assert parse_recipe(values) == pickle.loads(pickle.dumps(recipe)) == recipe
    loss = modules.loss(recipe.loss, classes=3, dim=8, samples=9)
    assert (loss.dim, loss.orders, float(loss(torch.ones(2, 8), None))) == (8, (1, 2), 1280.0)


def test_a_class_may_state_its_settings() -> None:
    text = "methods: {mine: {like: ms, pooling: {module: 'outside.circle:Power', exponent: 3}}}"
    settings = Definitions(Params(text=text)).layers("cub", "mine").recipe().pooling
    built = modules.pooling(settings, 4, 8, int)
    assert (settings.projects, built.channels, built.exponent) == (True, 4, 3.0)


def test_a_method_has_the_fields_of_the_baseline_and_its_own() -> None:
    mine = "method: outside.method.Compact, weight: 2, backbone: {name: test_resnet, pretrained: false}"
    definitions = Definitions(Params(text=f"methods: {{mine: {{{mine}}}, more: {{like: mine, weight: 3}}}}"))
    layers = definitions.layers("parts", "more")
    recipe = layers.recipe()
    assert (recipe.dim, recipe.weight, recipe.batch.size) == (
        8,
        3.0,
        definitions.layers("parts", "ms").recipe().batch.size,
    )
    assert layers.origin("weight") == "params.yaml:1, methods.more"
    assert parse_recipe(recipe.model_dump(mode="json")) == pickle.loads(pickle.dumps(recipe)) == recipe
    method = require_compatible(recipe)
    assert (type(method).__name__, method.dim, method.weight) == ("Compact", 8, 3.0)
    assert "outside.method" in modules_of(recipe)
    assert position_modules_of(recipe) == ["outside.shares"]
    on_features = head("outside.method:Compact", None, {"weight": 1.0, "backbone.name": "test_vit"}).recipe()
    assert (on_features.method, on_features.optimizer.learning_rate) == (recipe.method, 1e-3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("method: outside.method:Compac", r":3: methods.mine.method: .*no attribute 'Compac'"),
        ("method: outside.circle:Circle", r":3: methods.mine.method: .*Circle has no attribute `Settings`"),
        ("method: compact", r"must be one of baseline, .*, or a class"),
        ("method: outside.method:Compact", r":2: methods.mine.weight is missing"),
        ("method: outside.method:Compact\n    weight: 1\n    wight: 1", r":5: .*wight is not a setting"),
        ("method: outside.method:Compact\n    weight: a", r":4: methods.mine.weight: .*valid number"),
    ],
)
def test_a_mistake_in_a_method_is_an_error_with_line_and_key(fields: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Definitions(Params(text=f"methods:\n  mine:\n    {fields}\n")).layers("parts", "mine").recipe()


def test_a_network_drops_the_fields_of_the_network_below() -> None:
    below = "like: ms, backbone: {name: resnet18, checkpoint: a.pth, stages: [-2, -1]}"
    above = "like: low, backbone: {module: outside.network.Conv2, arguments: {kernel: 5}, pretrained: false}"
    again = "like: high, backbone: {module: 'outside.network:Conv2', batch_norm: batch}"
    text = f"methods: {{low: {{{below}}}, high: {{{above}}}, top: {{{again}}}}}"
    recipe = Definitions(Params(text=text)).layers("cub", "top").recipe()
    assert parse_recipe(recipe.model_dump(mode="json")) == pickle.loads(pickle.dumps(recipe)) == recipe
    assert recipe.backbone.checkpoint is None
    built = require_compatible(recipe).backbone
    assert (built.channels, built.mean, built.network.second.kernel_size) == ((4, 8), (0.5,) * 3, (5, 5))
    assert "outside.network" in modules_of(recipe)


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("module: outside.circle:Circle", r":5: .*backbone.module: .*Circle has no attribute `plan`"),
        ("module: outside.network:Conv2\n      arguments: {kernal: 3}", r":6: .*arguments.kernal is not"),
        ("module: outside.network:Conv2\n      arguments: {kernel: a}", r":6: .*valid integer, got 'a'"),
    ],
)
def test_a_mistake_in_a_network_is_an_error_with_line_and_key(backbone: str, message: str) -> None:
    text = f"methods:\n  mine:\n    like: ms\n    backbone:\n      {backbone}\n"
    with pytest.raises(UserError, match=message):
        Definitions(Params(text=text)).layers("cub", "mine").recipe()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["gamma: 1", "module: outsid.circle:Circle"], r"params.yaml:6: .*loss.module: .*No module"),
        (["module: outside.circle:Circl"], r":5: .*no attribute 'Circl'"),
        (["module: outside.helper:scaled"], r":5: .*scaled is not a class"),
        ([f"module: {CLASS}"], r":4: methods.mine.loss.gamma is missing"),
        ([f"module: {CLASS}", "gamma: 1", "gama: 2"], r":7: methods.mine.loss.gama is not .*\n.*mean gamma"),
        ([f"module: {CLASS}", "gamma: '1'"], r":6: methods.mine.loss.gamma: .*valid number"),
        (["name: hybrid", f"proxy: {{module: '{CLASS}', gamma: 1}}"], r":6: .*'pairs'; .*must be proxies"),
    ],
)
def test_a_mistake_is_an_error_with_line_and_key(lines: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(*lines)


def test_a_recipe_from_elsewhere_imports_only_what_the_project_names(project: Path) -> None:
    values = {"method": "baseline", "loss": {"module": CLASS, "gamma": 1}}
    with pytest.raises(UserError, match="imports os:system, code from outside"):
        parse_recipe({"method": "os:system"})
    params = project / "params.yaml"
    for text in ("", f"# module: {CLASS}\n", f"module: {CLASS}2\n"):
        params.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="that this project does not name"):
            parse_recipe(values)
    params.write_text(f'{HEAD}      "module": "{CLASS}"\n', encoding="utf-8")
    named = parse_recipe(values)
    with trusted():
        assert parse_recipe(values) == named


def test_an_edit_of_an_imported_module_changes_the_code_of_its_method_alone(project: Path) -> None:
    (project / "unseen/stages").mkdir(parents=True)
    (project / "unseen/stages/train.py").write_text("import outside.helper\n", encoding="utf-8")
    mine = {name for name in modules_of(resolved(f"module: {CLASS}", "gamma: 1")) if "outside" in name}

    def codes() -> list[dict[str, str]]:
        code = code_of(project / "unseen")
        return [code.closure(["unseen.stages.train"]), code.closure(["unseen.stages.train", *mine, "torch"])]

    other, before = codes()
    (project / "outside/helper.py").write_text("def scaled(x, by):\n    return by * x\n", encoding="utf-8")
    unchanged, after = codes()
    assert unchanged == other
    assert set(before) - set(other) == {"outside.circle", "outside.helper", "torch"}
    assert {name for name in before if before[name] != after[name]} == {"outside.helper"}
