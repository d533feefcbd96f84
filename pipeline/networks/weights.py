"""The published weights of networks (recipes/weights.yaml), and the comparison of a file with its hash."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ruamel.yaml import YAML

_TABLE = Path(__file__).parents[1] / "recipes/weights.yaml"
_PREFIX = re.compile(r"[0-9a-f]{8,64}")
REMEDY = "Delete the file and download it again, or rename it if these are your weights."
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PublishedWeights:
    """A row of weights.yaml, which defines the fields. Raises ValueError for an invalid hash."""

    name: str
    url: str
    publisher: str
    data: str
    top1: float
    printed: str
    files: Mapping[str, str | None]

    def __post_init__(self) -> None:
        for file, digits in self.files.items():
            if digits is not None and not _PREFIX.fullmatch(digits):
                raise ValueError(
                    f"{_TABLE.name}: {self.name}: {file}: 8 to 64 hexadecimal digits expected, got {digits!r}"
                )


@cache
def published_weights() -> dict[str, PublishedWeights]:
    """All rows by `backbone.name`. Raises TypeError for a missing or unknown field."""
    rows = YAML(typ="safe").load(_TABLE.read_text(encoding="utf-8"))
    return {name: PublishedWeights(name=name, **row) for name, row in rows.items()}


def published_digits(path: Path) -> str | None:
    """The published first digits of the SHA-256 of a weights file; None: not published.

    A file is recognised by its name in weights.yaml. A file in the cache of the Hugging Face hub is a link to
    a file that is named by the SHA-256 that the hub publishes.
    """
    for weights in published_weights().values():
        if (digits := weights.files.get(path.name)) is not None:
            return digits
    stored = path.resolve().name
    return stored if _SHA256.fullmatch(stored) else None


def difference(path: Path) -> str:
    """The difference of a weights file from its published hash, as a sentence; empty if there is none."""
    digits = published_digits(path)
    if digits is None:
        return ""
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual.startswith(digits):
        return ""
    return (
        f"{path} is not the published file: its SHA-256 starts with {actual[: len(digits)]}, the "
        f"published one with {digits}."
    )


def require_published_bytes(path: Path) -> None:
    """Raises ValueError for a weights file that differs from its published hash."""
    if problem := difference(path):
        raise ValueError(f"{problem} {REMEDY}")
