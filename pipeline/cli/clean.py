"""`unseen clean`: lists what takes space, and removes what no commit and no experiment needs."""

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.runtime.errors import UserError
from unseen.runtime.leftovers import remove_leftovers

STATE = Path("data/state")
LOGS = STATE / "logs"  # of parallel runs
_KEPT = {"all_commits": True, "all_experiments": True}  # and the workspace, which DVC always keeps


@dataclass(frozen=True)
class Unneeded:
    """The files of DVC's cache that neither the workspace nor a commit nor an experiment uses."""

    files: int
    size: int


def clean(yes: bool, states: bool) -> list[str]:
    """Lists large directories, asks (unless `yes`), and removes; returns the closing lines.

    Removes files of DVC's cache as `dvc gc --all-commits --all-experiments`, the logs of parallel runs, and
    what killed runs left behind; with `states` also the states of unfinished trainings, which then start
    again.
    Results of the workspace, of every commit and of every experiment remain. Raises UserError outside a git
    repository, where no commit can be examined, and if DVC's lock is taken.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        repo = Repo()
        cache = Path(repo.cache.local.path)
        unneeded = unneeded_cache(repo)
        _print(listing(cache, unneeded))
        removable = [LOGS, *(path for path in _children(STATE) if states and path != LOGS)]
        expected = unneeded.size + sum(map(size_of, removable))
        if not yes and not _confirmed(expected):
            return ["Nothing was removed."]
        before = sum(map(size_of, [cache, *removable]))
        repo.gc(**_KEPT)
    except DvcException as error:
        raise UserError(
            f"DVC cannot list what the commits need: {error}",
            "Run in a git repository, when no other DVC process is active.",
        ) from error
    remove_leftovers(Path())
    for path in removable:
        shutil.rmtree(path, ignore_errors=True)
    freed = before - sum(map(size_of, [cache, *removable]))
    return [f"Removed {mebibytes(freed)}."]


def unneeded_cache(repo: Any) -> Unneeded:
    """What `dvc gc --all-commits --all-experiments` would remove. `repo` is a dvc.repo.Repo."""
    used = {
        identifier.value
        for group in repo.used_objs(**_KEPT).values()
        for identifier in group
        if identifier.value
    }
    stores = {id(store): store for _, store in repo.cache.by_scheme() if store}.values()
    sizes = [
        os.path.getsize(store.oid_to_path(identifier))
        for store in stores
        for identifier in store.all()
        if identifier not in used
    ]
    return Unneeded(len(sizes), sum(sizes))


def listing(cache: Path, unneeded: Unneeded) -> Iterator[str]:
    """The sizes of the directories, largest first, and of what can be removed."""
    notes = {
        cache: f"DVC's cache; {mebibytes(unneeded.size)} in {unneeded.files} files needed by no commit",
        STATE: "unfinished trainings and sweeps, which a run resumes; --states removes them",
        LOGS: "logs of parallel runs",
    }
    paths = [*_children(Path("data")), LOGS, cache]
    sizes = sorted(((size_of(path), path) for path in paths), key=lambda pair: (-pair[0], pair[1]))
    for size, path in sizes:
        if size:
            yield f"{mebibytes(size):>14}  {path}  {notes.get(path, '')}".rstrip()


def size_of(path: Path) -> int:
    """The bytes of the files under `path`, 0 if it does not exist. Links are not followed."""
    return sum(
        entry.lstat().st_size for entry in path.rglob("*") if not entry.is_symlink() and entry.is_file()
    )


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"


def _children(path: Path) -> list[Path]:
    return sorted(child for child in path.glob("*") if child.is_dir())


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _confirmed(size: int) -> bool:
    """Asks on a terminal; without one the answer is no."""
    if not sys.stdin.isatty():
        sys.stdout.write(f"{mebibytes(size)} can be removed: `unseen clean --yes`.\n")
        return False
    return input(f"Remove {mebibytes(size)}? [y/N] ").strip().lower() in ("y", "yes")
