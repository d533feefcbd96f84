"""The wheel: one top-level package, which works in an empty environment beside packages of the same names."""

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.photos import picture

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    """setup.py as a module, without a call of `setup`."""
    spec = importlib.util.spec_from_file_location("setup_of_unseen", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def modules_of(source: str) -> list[str]:
    """The modules that import statements name, and strings that are a name of a module of the project."""
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or ".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names += re.findall(r"^(?:unseen\.)?_?pipeline\.[\w.:]+$", node.value)
    return names


@pytest.mark.slow
def test_renames_the_package_in_every_module(setup: ModuleType) -> None:
    replaced = 0
    for package in ("pipeline", "unseen"):
        for file in (ROOT / package).rglob("*.py"):
            source = file.read_text(encoding="utf-8")
            expected = [re.sub(r"^pipeline\b", "unseen._pipeline", name) for name in modules_of(source)]
            assert modules_of(setup.renamed(source)) == expected, file
            assert not any(name.startswith("stages") for name in expected), "stages are not in the wheel"
            replaced += sum(name.startswith("unseen._pipeline") for name in expected)
    assert replaced > 1000


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("from unseen.evaluation.index import kinds", "from unseen._pipeline.index import kinds"),
        ("    é = 1; from pipeline import x".strip(), "é = 1; from unseen._pipeline import x"),
        ("NAME = 'unseen.losses.snca:Snca'", "NAME = 'unseen._pipeline.losses.snca:Snca'"),
        ("DIRECTORY = 'pipeline'", "DIRECTORY = 'pipeline'"),
        ("TEXT = 'see unseen.evaluation.index'", "TEXT = 'see unseen.evaluation.index'"),
        ("from .pipeline import x", "from .pipeline import x"),
        ("from pipelines import x", "from pipelines import x"),
    ],
)
def test_renames_names_of_modules_only(setup: ModuleType, source: str, result: str) -> None:
    assert setup.renamed(source) == result


@pytest.mark.parametrize("source", ["import unseen.evaluation.index", "NAME = r'unseen.evaluation.index'"])
def test_refuses_a_name_that_it_cannot_replace(setup: ModuleType, source: str) -> None:
    with pytest.raises(ValueError, match="line 1"):
        setup.renamed(source)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages of this one, but not its editable installation."""
    directory = tmp_path_factory.mktemp("wheel")
    parts = ("pipeline", "stages", "unseen", "*.toml", "setup.py", "README.md", "LICENSE")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard", *parts],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = listing.stdout.split("\0")
    for name in filter(None, files):
        (directory / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / "source" / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", ".", "./source"], cwd=directory, check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], cwd=directory, check=True)
    (packages,) = (directory / "venv/lib").glob("python*/site-packages")
    with zipfile.ZipFile(next(directory.glob("unseen-*.whl"))) as wheel:
        wheel.extractall(packages)
    # A path in a .pth file is not searched for further .pth files, such as that of the editable installation.
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    for name in ("pipeline", "stages"):  # distributions with these names
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(f"raise ImportError('the other {name}')")
    return directory


def in_environment(environment: Path, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [environment / "venv/bin/python", *arguments],
        cwd=directory,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_wheel_contains_one_top_level_package(environment: Path) -> None:
    with zipfile.ZipFile(next(environment.glob("unseen-*.whl"))) as wheel:
        names = wheel.namelist()
        (top,) = [name for name in names if name.endswith("top_level.txt")]
        assert wheel.read(top) == b"unseen\n"
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"unseen"}
    files = {
        name.removeprefix("pipeline/cli/_") for name in names if name.startswith("pipeline/cli/_pipeline")
    }
    paths = [path.relative_to(ROOT) for path in (ROOT / "pipeline").rglob("*.*")]
    assert files == {path.as_posix() for path in paths if "__pycache__" not in path.parts}


# Runs several commands in one process, which imports the libraries once. The output of each is one element.
COMMANDS = """
import contextlib, io, json, sys
from unseen import cli
results = []
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            cli.main(arguments)
            status = 0
        except SystemExit as ended:
            status = ended.code
    results.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(results))
"""


@pytest.mark.slow
def test_commands_without_the_graph_work_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(2):
            (tmp_path / "photos" / label / f"{number}.jpg").write_bytes(picture(2 * ord(label) + number))

    vectors = np.eye(4, dtype=np.float32)[[0, 0, 1, 1]]
    np.save(tmp_path / "vectors.npy", vectors)
    (tmp_path / "labels.txt").write_text("a\na\nb\nb\n")
    working = [
        ["doctor"],
        ["index", "photos", "catalog", "--labels", "folders", "--size", "64"],
        ["find", "catalog", "photos/a/0.jpg", "--json"],
        ["evaluate", "vectors.npy", "--labels", "labels.txt", "--bootstrap", "10"],
    ]
    refused = [["run"], ["study", "--list"], ["clean"], ["recipe", "cub", "gsp", "--diff", "HEAD"]]
    process = in_environment(environment, tmp_path, "-c", COMMANDS, json.dumps(working + refused))
    assert process.returncode == 0, process.stderr
    results = json.loads(process.stdout)
    for arguments, (status, _, printed) in zip(working, results, strict=False):
        assert status == 0, (arguments, printed)
    assert "clone" in results[0][1]
    answer = json.loads(results[2][1])
    assert answer["queries"][0]["matches"][0]["path"] == "a/0.jpg"
    assert "MAP@R" in results[3][1]
    for arguments, (status, _, printed) in zip(refused, results[len(working) :], strict=True):
        assert status == 1, arguments
        assert "Clone the repository" in printed, arguments
    process = in_environment(environment, tmp_path, "-m", "unseen", "recipe", "cub", "gsp")
    assert process.returncode == 0, process.stderr
    assert "pipeline/recipes/methods/" in process.stdout
