"""The commit of a working tree, its date, and changes of the code."""

import subprocess
from pathlib import Path

import pytest

from unseen.runtime.revision import Revision, revision_of


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *identity, *arguments], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def test_names_commit_date_and_changes_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2024-02-03T04:05:06+00:00")
    assert revision_of(tmp_path) is None, "no repository"
    git(tmp_path, "init")
    assert revision_of(tmp_path) is None, "no commit"
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline/a.py").write_text("a = 1\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "A")
    expected = Revision(git(tmp_path, "rev-parse", "HEAD"), "2024-02-03T04:05:06+00:00", False)
    assert revision_of(tmp_path) == expected
    (tmp_path / "dvc.lock").write_text("changed by a run\n")
    assert revision_of(tmp_path) == expected
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-m", "results")
    assert revision_of(tmp_path) == expected, "equal code gives an equal report"
    (tmp_path / "pipeline/a.py").write_text("a = 2\n")
    assert revision_of(tmp_path) == Revision(expected.commit, expected.date, True)


def test_a_machine_without_git_has_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert revision_of(tmp_path) is None
