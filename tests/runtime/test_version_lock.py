"""unseen.lock: which changes of the package a project must accept."""

import shutil
from pathlib import Path

import pytest

from unseen.runtime.errors import UserError
from unseen.runtime.stage import PACKAGE
from unseen.runtime.version_lock import LOCK, accept, require_accepted


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package as a wheel installs it."""
    folder = tmp_path / "site-packages/unseen"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def edit(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def test_a_clone_and_a_wheel_of_it_have_one_lock(tmp_path: Path, package: Path) -> None:
    assert accept(tmp_path, package) == accept(tmp_path, PACKAGE)
    require_accepted(tmp_path, package)
    require_accepted(PACKAGE.parent, PACKAGE)
    assert not (PACKAGE.parent / LOCK).exists()


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("stages/train.py", True),
        ("report/page.html", True),
        ("runtime/device/precision.py", True),
        ("runtime/errors.py", False),
        ("cli/project/params.yaml", False),
        ("cluster/task.py", False),
    ],
)
def test_a_change_of_a_file_that_can_change_a_result_must_be_accepted(
    tmp_path: Path, package: Path, file: str, counts: bool
) -> None:
    accept(tmp_path, package)
    edit(package / file)
    if not counts:
        require_accepted(tmp_path, package)
        return
    with pytest.raises(UserError, match=r"accepts unseen \S+, but .* with other files\.\n  `unseen lock`"):
        require_accepted(tmp_path, package)
    accept(tmp_path, package)
    require_accepted(tmp_path, package)


def test_a_renamed_file_must_be_accepted(tmp_path: Path, package: Path) -> None:
    accept(tmp_path, package)
    (package / "losses/triplet.py").rename(package / "losses/triplets.py")
    with pytest.raises(UserError, match="with other files"):
        require_accepted(tmp_path, package)


def test_another_version_and_a_missing_lock_are_named(tmp_path: Path, package: Path) -> None:
    with pytest.raises(UserError, match=r"unseen\.lock accepts nothing, but .* contains unseen "):
        require_accepted(tmp_path, package)
    (tmp_path / LOCK).write_text("unseen 0.0.1\nsha256 0\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"accepts unseen 0\.0\.1, but .* contains unseen [\d.]+\.\n"):
        require_accepted(tmp_path, package)
