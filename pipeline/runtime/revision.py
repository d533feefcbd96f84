"""The git commit of the code in a working tree."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

_CODE = ("pipeline", "stages", "unseen_search", "dvc_parallel", "parts", "unseen.lock", "params.yaml")


@dataclass(frozen=True)
class Revision:
    """The last commit that changed code or params.yaml. A commit of results alone has the same revision.

    `date`: of the commit, ISO 8601. `is_modified`: whether code or params.yaml differ from it.
    """

    commit: str
    date: str
    is_modified: bool


def revision_of(root: Path) -> Revision | None:
    """The revision of a working tree. None outside of a git repository, without a commit, or without git."""
    last = _git(root, "log", "-1", "--format=%H %cI", "--", *_CODE)
    if not last:
        return None
    commit, date = last.split()
    return Revision(commit, date, bool(_git(root, "status", "--porcelain", "--", *_CODE)))


def _git(root: Path, *arguments: str) -> str:
    """The output of a git command; empty if it fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
