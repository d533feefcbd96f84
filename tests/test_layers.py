"""Every package is in a layer of .importlinter."""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import unseen

ROOT = Path(__file__).resolve().parents[1]


def test_every_package_is_in_a_layer() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    layers = set(re.findall(r"unseen\.(\w+)", contracts["importlinter:contract:layers"]["layers"]))
    packages = {path.parent.name for path in (ROOT / "pipeline").glob("*/__init__.py")}
    assert packages == layers
    assert len(packages - {"stages"}) <= 14


def test_no_package_has_the_name_of_a_public_function() -> None:
    """The import of a package `unseen.index` would replace the function `unseen.index`."""
    names = {path.stem for path in (ROOT / "pipeline").glob("*") if not path.stem.startswith("__")}
    assert names.isdisjoint(unseen.__all__)


@pytest.mark.parametrize(("module", "name"), [("pipeline", "unseen"), ("stages.train", "unseen.stages")])
def test_a_second_import_name_is_refused(module: str, name: str) -> None:
    command = [sys.executable, "-c", f"import {module}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"import {name}, not {module.partition('.')[0]}" in process.stderr


def test_a_search_imports_no_page() -> None:
    code = "import sys, unseen_search.indexing, unseen_search.search; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [name for name in modules.split() if name.startswith(("unseen.report", "matplotlib"))] == []


def test_no_call_has_eight_positional_arguments() -> None:
    """Except the layers of nn.Sequential."""
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("pipeline", "stages", "unseen_search", "dvc_parallel")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and len(node.args) >= 8 and ast.unparse(node.func) != "nn.Sequential"
    ]
    assert calls == []


def _modules() -> dict[str, ast.Module]:
    """The syntax tree of each module, by its name."""
    trees = {}
    folders = {"unseen": "pipeline", "unseen_search": "unseen_search", "dvc_parallel": "dvc_parallel"}
    for package, folder in folders.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = [package, *path.relative_to(ROOT / folder).with_suffix("").parts]
            trees[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def _imports(node: ast.AST) -> Iterator[str]:
    """The imports of a module, also inside of functions, without those for type checkers."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield str(node.module)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child)


def test_no_module_imports_itself_through_others() -> None:
    """A name of a package is imported from its module or, where it is no module, from the package."""
    trees = _modules()
    graph = {
        module: {name for name in _imports(tree) if name in trees and trees[name].body} - {module}
        for module, tree in trees.items()
    }
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    "name", ["Claim", "Experiment", "Patch", "Place", "Plan", "Record", "Run", "Runner", "Store", "Study"]
)
def test_a_word_of_the_glossary_is_one_class(name: str) -> None:
    defined = [
        module
        for module, tree in _modules().items()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    assert len(defined) <= 1, defined
