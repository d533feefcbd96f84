"""dvc.yaml against the code: a stage lists every sub-package that its script imports, and every key of params.yaml that it reads; no more."""

import ast
import re
from pathlib import Path

import grimp
import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
STAGES = YAML(typ="safe").load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
NEVER_CHANGES_A_RESULT = "pipeline.runtime"


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("pipeline", "stages", cache_dir=None)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dependencies_are_the_imports(stage: str, imports: grimp.ImportGraph) -> None:
    upstream = imports.find_upstream_modules(f"stages.{stage}")
    expected = {"/".join(module.split(".")[:2]) for module in upstream if module.count(".") and not module.startswith(NEVER_CHANGES_A_RESULT)}
    listed = {dep for dep in STAGES[stage]["deps"] if dep.startswith("pipeline/")}
    assert listed == expected
    assert f"stages/{stage}.py" in STAGES[stage]["deps"]


def keys_read(stage: str) -> set[str]:
    """The keys that a stage's script and room ask `settings`, `resolve` and `dataset_settings` for, axes as ${item.x}."""
    keys: set[str] = set()
    sources = [ROOT / "stages" / f"{stage}.py", *(ROOT / "pipeline" / stage).glob("*.py")]
    for node in (node for source in sources for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "settings":
            keys.add(_template(node.args[1]))
        elif node.func.id == "resolve":
            dataset, method = (_template(argument) for argument in node.args[1:3])
            keys |= {f"methods.{method}", f"datasets.{dataset}.recipe", f"datasets.{dataset}.recipes.{method}"}
        elif node.func.id == "dataset_settings":
            keys |= {"ingest", f"datasets.{_template(node.args[1])}.source"}
    axes = STAGES[stage].get("matrix", {})
    loops = {key for key in keys if any(axis not in axes for axis in re.findall(r"\$\{item\.(\w+)\}", key))}  # over a whole block
    return keys - loops | {key.split(".")[0] for key in loops}


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return f"${{item.{node.id}}}"
    assert isinstance(node, ast.JoinedStr), ast.dump(node)
    return "".join(_template(part.value) if isinstance(part, ast.FormattedValue) else _template(part) for part in node.values)


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_params_are_the_keys_read(stage: str) -> None:
    assert set(STAGES[stage].get("params", ())) == keys_read(stage)
    script = ROOT / "stages" / f"{stage}.py"
    assert ".read(" not in script.read_text(encoding="utf-8"), "a stage reads its settings through settings(), resolve() or dataset_settings()"


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_a_stage_is_a_script_of_its_own_name_with_its_axes(stage: str) -> None:
    axes = list(STAGES[stage].get("matrix", {}))
    expected = " ".join([f"exec env OMP_WAIT_POLICY=passive UNSEEN_PARENT=$PPID python -m stages.{stage}", *(f"${{item.{axis}}}" for axis in axes)])
    assert STAGES[stage]["cmd"] == expected
    text = (ROOT / "stages" / f"{stage}.py").read_text(encoding="utf-8")
    called = re.search(r"^    main\(run((?:, \"\w+\")*)\)$", text, re.MULTILINE)
    assert called is not None
    assert re.findall(r'"(\w+)"', called.group(1)) == axes


def test_every_method_has_a_recipe_on_every_data_set() -> None:
    """`params` of a matrix stage name datasets.<d>.recipes.<m>, and DVC refuses a key that does not exist."""
    document = YAML(typ="safe").load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for name, dataset in document["datasets"].items():
        assert set(dataset["recipes"]) == set(document["methods"]), name
        assert "recipe" in dataset, name
    for field in ("method", "name"):
        assert field not in {key for dataset in document["datasets"].values() for key in dataset["recipe"]}
