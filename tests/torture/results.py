"""The results of the campaigns: one JSON file each, committed, from which docs/reliability.md is written.

A result belongs to one version of the code: a commit, and a digest of the code that its cases execute: the
modules that it names and everything that these import, without comments and docstrings. A result of another
digest is discarded when the campaign starts; changes elsewhere keep it.
"""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from unseen.runtime.code import Code
from unseen.runtime.files import write_json
from unseen.runtime.flock import held

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results")
Result = dict[str, Any]
_FOLDERS = {
    "unseen": "pipeline",
    "unseen.stages": "stages",
    "unseen_search": "unseen_search",
    "dvc_parallel": "dvc_parallel",
}
_CODE = (*_FOLDERS.values(), "params.yaml", ":(glob)tests/torture/*.py")


@cache
def _code(root: Path) -> Code:
    return Code({name: root / folder for name, folder in _FOLDERS.items()}, all_modules=True)


def closure(modules: Iterable[str], root: Path = ROOT) -> dict[str, str]:
    """The digests of these modules and of everything that they import, by their names."""
    return _code(root).closure(modules)


def version(modules: Iterable[str], root: Path = ROOT) -> str:
    """A digest of these modules and of everything that they import."""
    return hashlib.sha256(json.dumps(closure(modules, root), sort_keys=True).encode()).hexdigest()[:16]


@cache
def commit() -> str:
    """The current commit, abbreviated; with "-dirty" if the code or a campaign differs from it."""
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True
    )
    changed = [*git, "diff", "--quiet", "HEAD", "--", *_CODE]
    return name.stdout.strip() + ("-dirty" if subprocess.run(changed, check=False).returncode else "")


def load(path: Path) -> dict[str, Result]:
    """The results in a file, by the name of the row; empty if it does not exist."""
    content: dict[str, Result] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content


def save(path: Path, results: dict[str, Result]) -> None:
    write_json(path, results)


def record(path: Path, name: str, result: Result) -> None:
    """Writes one row into a file to which other processes write other rows at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT):
        write_json(path, load(path) | {name: result})


def current(results: dict[str, Result], name: str, modules: Iterable[str]) -> Result:
    """The result with this name; an empty one if it does not exist or belongs to another version."""
    digest = version(modules)
    if results.get(name, {}).get("digest") != digest:
        results[name] = {"digest": digest, "commit": commit()}
    return results[name]
