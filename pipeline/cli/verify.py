"""Compares the outputs of the graph with the hashes in dvc.lock, byte by byte.

DVC itself, `dvc status` too, reads a file again only if its time or size changed, so it reports no bit that
the disk flipped.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress


class Output(NamedTuple):
    """An output of the graph. `problems`: what differs, by the path of the file."""

    path: str
    stage: str
    files: int
    size: int  # bytes
    problems: dict[str, str]


def outputs(root: Path) -> list[Output]:
    """The existing outputs of dvc.lock, each read completely. Raises UserError if DVC cannot list them."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        repo = Repo(str(root))
        recorded = [out for out in repo.index.outs if out.hash_info and out.exists]
    except DvcException as error:
        raise UserError(
            f"DVC cannot list the outputs of {root}: {error}", "Repair dvc.yaml and dvc.lock (`dvc status`)."
        ) from error
    with Progress("verify", None, "files") as progress:
        return [_verified(out, root, progress) for out in recorded]


def _verified(out: Any, root: Path, progress: Progress) -> Output:
    top = Path(out.fs_path)
    expected = dict(_recorded(out))
    paths = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    actual = {path: path for path in paths if not out.dvcignore.is_ignored_file(str(path))}
    problems: dict[str, str] = {}
    if not expected:
        problems[str(top.relative_to(root))] = "its list of files is missing in DVC's cache"
    for path in sorted(expected.keys() | actual.keys()):
        name = str(path.relative_to(root))
        if path not in actual:
            problems[name] = "is missing"
        elif expected and path not in expected:
            problems[name] = "is not a file of the output"
        elif expected and _md5(path) != expected[path]:
            problems[name] = "differs"
        progress.advance()
    size = sum(path.stat().st_size for path in actual)
    return Output(str(top.relative_to(root)), out.stage.addressing, len(actual), size, problems)


def _recorded(out: Any) -> Iterator[tuple[Path, str]]:
    """The files of an output with their md5; none if the list of a directory is not in the cache."""
    top = Path(out.fs_path)
    if not out.hash_info.isdir:
        yield top, out.hash_info.value
        return
    for key, _, info in out.get_obj() or ():
        yield top.joinpath(*key), info.value


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
