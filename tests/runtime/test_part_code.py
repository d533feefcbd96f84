"""Parts from outside the project: whose import is refused, and what belongs to their code."""

import json
import sys
from pathlib import Path

import pytest

from tests.runtime.outside import CLASS, HEAD, outside_project, resolved
from unseen.cli.main import main
from unseen.experiments.plan.modules import modules_of
from unseen.methods.settings import parse_recipe
from unseen.runtime.code import code_of
from unseen.runtime.errors import UserError
from unseen.runtime.parts import trusted
from unseen.runtime.stage import PACKAGE


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return outside_project(tmp_path, monkeypatch)


def test_a_recipe_from_elsewhere_imports_only_what_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    params.unlink()
    monkeypatch.setattr("unseen.runtime.parts._classes", {})
    with trusted("outsid", "other.circle"), pytest.raises(UserError, match="`unseen --trust outside "):
        parse_recipe(values)
    for packages in ((), ("outside",), ("other", "outside.circle")):
        monkeypatch.setattr("unseen.runtime.parts._classes", {})
        with trusted(*packages):
            assert parse_recipe(values).model_dump() == named.model_dump()


def test_a_part_beside_params_yaml_needs_no_path(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that are installed come first."""
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(project)])
    monkeypatch.setattr("unseen.runtime.parts.ROOT", project)
    (project / "outside").rename(project / "beside")
    assert resolved("module: beside.circle:Circle", "gamma: 7").loss.gamma == 7
    assert sys.path[-1] == str(project)


def test_a_command_trusts_a_package(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"schema_version": 1, "classes": 2, "samples": 4, "seed": 0, "dataset": "parts"}
    recipe = {"method": "baseline", "loss": {"module": CLASS, "gamma": 1}}
    (project / "model").mkdir()
    (project / "model/recipe.json").write_text(json.dumps(model | {"recipe": recipe}), encoding="utf-8")
    messages = []
    for options in ([], ["--trust", "outside"]):
        with pytest.raises(SystemExit):
            main([*options, "export-model", "model", "exported"])
        messages.append(capsys.readouterr().err)
    assert "imports outside.circle:Circle, code from outside" in messages[0]
    assert "weights.safetensors is missing" in messages[1]


def test_an_edit_of_an_imported_module_changes_the_code_of_its_method_alone(project: Path) -> None:
    (project / "unseen/stages").mkdir(parents=True)
    (project / "unseen/stages/train.py").write_text("import outside.helper\n", encoding="utf-8")
    mine = {name for name in modules_of(resolved(f"module: {CLASS}", "gamma: 1")) if "outside" in name}

    def codes() -> list[dict[str, str]]:
        code = code_of(project / "unseen", project)
        return [code.closure(["unseen.stages.train"]), code.closure(["unseen.stages.train", *mine, "torch"])]

    other, before = codes()
    (project / "outside/helper.py").write_text("def scaled(x, by):\n    return by * x\n", encoding="utf-8")
    unchanged, after = codes()
    assert unchanged == other
    assert set(before) - set(other) == {"outside.circle", "outside.helper", "torch"}
    assert {name for name in before if before[name] != after[name]} == {"outside.helper"}


def test_a_template_changes_the_code_of_its_section_alone(project: Path) -> None:
    (project / "outside/__init__.py").touch()
    code = code_of(PACKAGE, project)
    assert "outside/section.html" in code.closure(["outside.section"])
    assert "outside/section.html" not in code.closure(["outside.helper"])
