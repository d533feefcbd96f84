"""`unseen clean`: results of commits and of the workspace remain, all others are removed after an answer."""

import subprocess
import sys
from pathlib import Path

import pytest

from unseen.cli import clean as module
from unseen.cli.clean import clean, size_of
from unseen.runtime.errors import UserError

pytestmark = pytest.mark.graph
DVC_YAML = """
stages:
  train:
    cmd: mkdir -p data/models && cp source data/models/weights
    deps:
    - source
    outs:
    - data/models
"""
SIZE = 2**20


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a result in a commit, one in no commit, and one in the workspace: 1 MiB each."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dvc.yaml").write_text(DVC_YAML, encoding="utf-8")
    run("git", "init", "-q")
    run("dvc", "init", "-q")
    for letter in "abc":
        (tmp_path / "source").write_text(letter * SIZE, encoding="utf-8")
        run("dvc", "repro", "-q")
        if letter == "a":
            run("git", "add", "-A")
            run("git", "-c", "user.name=n", "-c", "user.email=e@example.org", "commit", "-qm", "a")
    (tmp_path / "data/state/logs").mkdir(parents=True)
    (tmp_path / "data/state/logs/train.log").write_text("log", encoding="utf-8")
    (tmp_path / "data/state/1234").mkdir()
    (tmp_path / "data/state/1234/checkpoint.pt").write_text("state", encoding="utf-8")
    return tmp_path


def run(program: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "dvc"] if program == "dvc" else [program]
    subprocess.run([*command, *arguments], check=True, capture_output=True)


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(module.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda question: text if "Remove 1.0 MiB" in question else "")


def test_keeps_the_results_of_commits_and_of_the_workspace(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = results / ".dvc/cache/files"
    before = size_of(cache)
    answer(monkeypatch, "n")
    assert clean(yes=False, states=False) == ["Nothing was removed."]
    assert size_of(cache) == before
    listed = capsys.readouterr().out.splitlines()
    assert "1.0 MiB in 2 files needed by no commit" in listed[0], "weights and the list of the directory"
    assert listed[1].split()[:3] == ["1.0", "MiB", "data/models"]
    answer(monkeypatch, "y")
    assert clean(yes=False, states=False) == ["Removed 1.0 MiB, 2 files of the cache."]
    assert before - size_of(cache) > SIZE
    assert not (results / "data/state/logs").exists()
    assert (results / "data/state/1234/checkpoint.pt").exists()
    run("git", "stash", "-q")
    run("dvc", "checkout", "-q")
    assert (results / "data/models/weights").read_text()[0] == "a"
    run("git", "stash", "pop", "-q")
    run("dvc", "checkout", "-q")
    assert (results / "data/models/weights").read_text()[0] == "c"
    assert clean(yes=True, states=True) == ["Removed 0.0 MiB, 0 files of the cache."]
    assert not (results / "data/state/1234").exists()


def test_keeps_the_results_of_stashes_and_of_named_clones(
    results: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result `b` is in a stash, `c` in a commit of another clone with the same cache."""
    (results / "source").write_text("b" * SIZE, encoding="utf-8")
    run("dvc", "repro", "-q")
    git = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    run("git", *git, "stash", "-q")
    cache, other = tmp_path_factory.mktemp("shared") / "cache", tmp_path_factory.mktemp("other") / "clone"
    run("git", "clone", "-q", str(results), str(other))
    (results / ".dvc/cache").rename(cache)
    for clone in (results, other):
        monkeypatch.chdir(clone)
        run("dvc", "cache", "dir", "--local", str(cache))
    (other / "source").write_text("c" * SIZE, encoding="utf-8")
    run("dvc", "repro", "-q")
    run("git", *git, "commit", "-qam", "c")
    monkeypatch.chdir(results)
    run("dvc", "checkout", "-q")
    before = size_of(cache)
    assert clean(yes=True, states=False) == ["Removed 0.0 MiB, 0 files of the cache."]
    assert size_of(cache) == before
    assert clean(yes=True, states=False, clones=[other]) == ["Removed 0.0 MiB, 0 files of the cache."]
    run("git", "stash", "pop", "-q")
    run("dvc", "checkout", "-q")
    assert (results / "data/models/weights").read_text()[0] == "b"
    run("git", "checkout", "-q", "--", ".")
    assert clean(yes=True, states=False, clones=[Path()]) == ["Removed 2.0 MiB, 4 files of the cache."]


def test_without_a_terminal_nothing_is_removed(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = size_of(results / ".dvc")
    monkeypatch.setattr(module.sys.stdin, "isatty", lambda: False, raising=False)
    assert clean(yes=False, states=True) == ["Nothing was removed."]
    assert "`unseen clean --yes`" in capsys.readouterr().out
    assert size_of(results / ".dvc/cache/files") > 0
    assert size_of(results / ".dvc") >= before


def test_refuses_a_directory_without_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("dvc", "init", "-q", "--no-scm")
    with pytest.raises(UserError, match=r"git cannot list the stashes of .*: .*not a git") as caught:
        clean(yes=True, states=False)
    assert "git repository" in caught.value.remedy
