"""The git commit of a working tree."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CODE = ("pipeline", "stages", "unseen", "params.yaml")


@dataclass(frozen=True)
class Revision:
    """`date`: of the commit, ISO 8601. `is_modified`: whether code or params.yaml differ from the commit."""

    commit: str
    date: str
    is_modified: bool


def revision_of(root: Path) -> Revision | None:
    """The revision of a working tree. None outside of a git repository, without a commit, or without git."""
    head = _git(root, "log", "-1", "--format=%H %cI")
    if not head:
        return None
    commit, date = head.split()
    paths = [name for name in _CODE if (root / name).exists()]
    return Revision(commit, date, bool(paths and _git(root, "status", "--porcelain", "--", *paths)))


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command; empty if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
