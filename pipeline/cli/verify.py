"""Compares the outputs of the graph, and their objects in DVC's cache, with the hashes in dvc.lock, byte by
byte.

DVC itself, `dvc status` too, reads a file again only if its time or size changed, so it reports no bit that
the disk flipped. It never reads an object of its cache again, so `dvc checkout` restores a damaged one, and
`dvc push` copies it. Therefore a damaged object is replaced by the file of the workspace, or removed.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from unseen.runtime.errors import UserError
from unseen.runtime.files import unwritable_is_an_error
from unseen.runtime.progress import Progress


class Output(NamedTuple):
    """An output of the graph. `problems`: what differs, by the path of the file. `source`: what restores it.
    `repaired`: the files whose damaged objects in DVC's cache were replaced."""

    path: str
    stage: str
    files: int
    size: int  # bytes
    problems: dict[str, str]
    source: Literal["cache", "git"] | None = None
    repaired: tuple[str, ...] = ()


def outputs(root: Path) -> list[Output]:
    """The existing outputs of dvc.lock, each read completely, with their objects in DVC's cache. Damaged
    objects are replaced or removed. Raises UserError if DVC cannot list them."""
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        repo = Repo(str(root))
        recorded = [out for out in repo.index.outs if out.hash_info and out.exists]
    except DvcException as error:
        raise UserError(
            f"DVC cannot list the outputs of {root}: {error}", "Repair dvc.yaml and dvc.lock (`dvc status`)."
        ) from error
    with Progress("verify", None, "files") as progress, unwritable_is_an_error(root / ".dvc"):
        return [_verified(out, root, progress) for out in recorded]


def _verified(out: Any, root: Path, progress: Progress) -> Output:
    top = Path(out.fs_path)
    cache: Any = out.cache if out.use_cache else None
    if cache is not None and out.hash_info.isdir:
        _remove_damaged(cache, out.hash_info.value)
    expected = dict(_recorded(out))
    paths = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    actual = {path for path in paths if not out.dvcignore.is_ignored_file(str(path))}
    problems: dict[str, str] = {}
    repaired: list[str] = []
    if not expected and cache is not None:
        problems[str(top.relative_to(root))] = "its list of files is missing in DVC's cache"
    elif not expected and _hash(top, actual) != out.hash_info.value:  # of a directory outside of the cache
        problems[str(top.relative_to(root))] = "differs"
    is_cached = bool(expected) and cache is not None
    for path in sorted(expected.keys() | actual):
        name = str(path.relative_to(root))
        if path not in expected:
            if expected:
                problems[name] = "is not a file of the output"
        else:
            is_removed = cache is not None and _remove_damaged(cache, expected[path])
            if path not in actual:
                problems[name] = "is missing"
            elif _md5(path) != expected[path]:
                problems[name] = "differs, also in DVC's cache" if is_removed else "differs"
            elif is_removed:
                cache.add(str(path), out.fs, expected[path])
                cache.protect(cache.oid_to_path(expected[path]))
                repaired.append(name)
            is_cached = is_cached and cache.exists(expected[path])
        progress.advance()
    size = sum(path.stat().st_size for path in actual)
    source: Literal["cache", "git"] | None = "cache" if is_cached else None
    if cache is None and (root / ".git").exists():
        source = "git"
    stage = out.stage.addressing
    return Output(str(top.relative_to(root)), stage, len(actual), size, problems, source, tuple(repaired))


def _remove_damaged(cache: Any, identifier: str) -> bool:
    """Removes an object of DVC's cache whose bytes are not those of its name. Whether it was removed."""
    path = Path(cache.oid_to_path(identifier))
    if not path.is_file() or _md5(path) == identifier.removesuffix(".dir"):
        return False
    path.unlink()
    return True


def _recorded(out: Any) -> Iterator[tuple[Path, str]]:
    """The files of an output with their md5; none if the list of a directory is not in the cache."""
    top = Path(out.fs_path)
    if not out.hash_info.isdir:
        yield top, out.hash_info.value
        return
    for key, _, info in out.get_obj() or ():
        yield top.joinpath(*key), info.value


def _hash(top: Path, files: set[Path]) -> str:
    """DVC's hash of a directory with these files."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    tree = Tree()
    for path in files:
        tree.add(path.relative_to(top).parts, None, HashInfo("md5", _md5(path)))
    tree.digest()
    return str(tree.hash_info.value)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
