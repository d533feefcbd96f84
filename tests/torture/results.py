"""The results of the campaigns: one JSON file each, committed, from which docs/reliability.md is written.

A result belongs to one version of the code: a commit, and the digest of the syntax of the packages that the
campaign runs. A result of another digest is discarded when the campaign starts.
"""

import ast
import hashlib
import json
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.resolution.code import digest_of
from pipeline.runtime.files import write_json

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results")
Result = dict[str, Any]
_CODE = ("pipeline", "stages", "unseen", "params.yaml", ":(glob)tests/torture/*.py")


@cache
def version(packages: tuple[str, ...]) -> str:
    """A digest of the modules below these folders, without comments and docstrings."""
    digest = hashlib.sha256()
    for package in sorted(packages):
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(digest_of(ast.parse(path.read_text(encoding="utf-8"))).encode())
    return digest.hexdigest()[:16]


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


def current(results: dict[str, Result], name: str, packages: Iterable[str]) -> Result:
    """The result with this name; an empty one if it does not exist or belongs to another version."""
    digest = version(tuple(packages))
    if results.get(name, {}).get("digest") != digest:
        results[name] = {"digest": digest, "commit": commit()}
    return results[name]
