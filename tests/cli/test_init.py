"""`unseen init` and `unseen lock`. tests/graph/test_unseen_init.py runs the graph of such a project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.params import write
from unseen.cli import init as module
from unseen.cli.main import main
from unseen.runtime.errors import UserError

FILES = {
    *(
        ".dvc/.gitignore",
        ".dvc/config",
        ".dvcignore",
        ".gitignore",
        "data/raw/README.md",
        "data/sweep/README.md",
    ),
    *("dvc.yaml", "params.yaml", "parts/__init__.py", "studies/example.yaml", "unseen.lock"),
}


def files_of(folder: Path) -> set[str]:
    paths = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
    return {path.as_posix() for path in paths if path.parts[0] != ".git"}


def test_a_new_directory_becomes_a_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", str(tmp_path / "my birds")])
    printed = capsys.readouterr().out
    assert "cd '" in printed
    assert "unseen run" in printed
    assert (tmp_path / "my birds/.git/HEAD").is_file()
    assert files_of(tmp_path / "my birds") == FILES
    ignored = (tmp_path / "my birds/.gitignore").read_text(encoding="utf-8")
    assert "/data/shards/" in ignored
    assert "tests" not in ignored
    graph = (tmp_path / "my birds/dvc.yaml").read_text(encoding="utf-8")
    assert "    deps: [unseen.lock, parts, studies]\n" in graph


@pytest.mark.parametrize("name", ["params.yaml", "parts/__init__.py", "unseen.lock"])
def test_a_file_is_never_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / name).write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=f"{name} exists"):
        module.init(tmp_path)
    assert files_of(tmp_path) == {name}
    assert (tmp_path / name).read_text(encoding="utf-8") == "mine"


def test_a_repository_of_git_and_dvc_stays_and_its_patterns_are_extended(tmp_path: Path) -> None:
    for folder in (".git", ".dvc", "birds"):
        (tmp_path / folder).mkdir()
    (tmp_path / "birds/.gitignore").write_text("*.tmp", encoding="utf-8")
    module.init(tmp_path / "birds")
    assert files_of(tmp_path / "birds") == {name for name in FILES if not name.startswith(".dvc/")}
    lines = (tmp_path / "birds/.gitignore").read_text(encoding="utf-8").splitlines()
    assert {"*.tmp", ".venv/", "/data/shards/"} <= {*lines}


def test_without_git_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="git is not installed"):
        module.init(tmp_path)
    assert files_of(tmp_path) == set()


@pytest.mark.slow
def test_own_parts_precede_those_of_a_clone_that_is_installed(tmp_path: Path) -> None:
    module.init(tmp_path)
    text = """
from torch import nn


class Circle(nn.Module):
    def __init__(self, gamma: float) -> None: ...

    def forward(self, embeddings, labels): ...
"""
    (tmp_path / "parts/circle.py").write_text(text, encoding="utf-8")
    mine = {"like": "ms", "loss": {"module": "parts.circle:Circle", "gamma": 8}}
    write(tmp_path, {"methods": {"mine": mine}})
    process = subprocess.run(
        [sys.executable, "-m", "unseen", "recipe", "parts", "mine"],
        cwd=tmp_path / "studies",
        env=os.environ | {"PYTHONPATH": str(module.PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "parts.circle:Circle" in process.stdout, process.stderr


def test_a_clone_has_no_lock() -> None:
    with pytest.raises(UserError, match="is a clone"):
        module.lock()
    assert not (module.ROOT / "unseen.lock").exists()
