"""`unseen clean`: lists what takes space, and removes what no commit and no experiment needs."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
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
    """The files of DVC's cache that nobody uses."""

    paths: tuple[Path, ...]
    size: int


def clean(yes: bool, states: bool, clones: Sequence[Path] = ()) -> list[str]:
    """Lists large directories, asks (unless `yes`), and removes; returns the closing lines.

    Removes files of DVC's cache that no workspace, commit, stash or experiment of this clone and of `clones`
    uses, the logs of parallel runs, and what killed runs left behind; with `states` also the states of
    unfinished trainings, which then start again. A cache outside of the project may serve other clones: it
    is cleaned only if `clones` names them.

    Raises UserError outside a git repository, where no commit can be examined, and if DVC's lock is taken.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        repo = Repo()
        others = [each for each in map(Repo, map(str, clones)) if each.root_dir != repo.root_dir]
        cache = Path(repo.cache.local.path)
        is_shared = not clones and not cache.resolve().is_relative_to(Path(repo.dvc_dir).resolve())
        unneeded = Unneeded((), 0) if is_shared else unneeded_cache(repo, others)
        sys.stdout.writelines(f"{line}\n" for line in listing(cache, None if is_shared else unneeded))
        removable = [LOGS, *(path for path in _children(STATE) if states and path != LOGS)]
        if not yes and not _confirmed(unneeded.size + sum(map(size_of, removable))):
            return ["Nothing was removed."]
        before = sum(map(size_of, removable))
        with contextlib.ExitStack() as locks:
            for each in (repo, *others):
                locks.enter_context(each.lock)
            unneeded = Unneeded((), 0) if is_shared else unneeded_cache(repo, others)
            for path in unneeded.paths:
                path.unlink(missing_ok=True)
    except DvcException as error:
        raise UserError(
            f"DVC cannot list what the commits need: {error}",
            "Run in a git repository, when no other DVC process is active.",
        ) from error
    remove_leftovers(Path())
    for path in removable:
        shutil.rmtree(path, ignore_errors=True)
    freed = unneeded.size + before - sum(map(size_of, removable))
    return [f"Removed {mebibytes(freed)}, {len(unneeded.paths)} files of the cache."]


def unneeded_cache(repo: Any, others: Sequence[Any] = ()) -> Unneeded:
    """The files of the cache of `repo` that it and `others` do not use; all are a dvc.repo.Repo."""
    used = {
        identifier.value
        for each in (repo, *others)
        for group in each.used_objs(**_KEPT, revs=_stashed(Path(each.root_dir))).values()
        for identifier in group
        if identifier.value
    }
    stores = {id(store): store for _, store in repo.cache.by_scheme() if store}.values()
    paths = tuple(
        Path(store.oid_to_path(identifier))
        for store in stores
        for identifier in store.all()
        if identifier not in used
    )
    return Unneeded(paths, sum(map(os.path.getsize, paths)))


def _stashed(root: Path) -> list[str]:
    """The commits of git's stashes: workspace, index and untracked files. Raises UserError if git cannot list
    them, because their models must stay."""
    command = ["git", "stash", "list", "--format=%H %P"]
    process = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if process.returncode:
        raise UserError(
            f"git cannot list the stashes of {root}: {process.stderr.strip()}",
            "Run in a git repository in which `git stash list` works.",
        )
    return process.stdout.split()


def listing(cache: Path, unneeded: Unneeded | None) -> Iterator[str]:
    """The sizes of the directories, largest first, and of what can be removed. None: nothing of the cache."""
    if unneeded is None:
        of_cache = "outside of this project, so other clones may use it: it stays unless --clone names them"
    else:
        of_cache = f"{mebibytes(unneeded.size)} in {len(unneeded.paths)} files needed by no commit"
    notes = {
        cache: f"DVC's cache; {of_cache}",
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


def _confirmed(size: int) -> bool:
    """Asks on a terminal; without one, or without anything to remove, the answer is no."""
    if not size:
        return False
    if not sys.stdin.isatty():
        sys.stdout.write(f"{mebibytes(size)} can be removed: `unseen clean --yes`.\n")
        return False
    return input(f"Remove {mebibytes(size)}? [y/N] ").strip().lower() in ("y", "yes")
