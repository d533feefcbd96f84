"""Checkpoints: the two newest of a run. Each file is written completely or not at all and ends with its
sha256.

torch's reader does not detect a flipped bit in a weight; the digest does. Files are read as weights only:
reading one runs no code.
"""

import hashlib
import re
import sys
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_file

_KEPT = 2
_DIGEST = 32  # bytes of a sha256


class Damaged(Exception):
    """A checkpoint that is truncated or altered."""


def save(directory: Path, iteration: int, identity: str, state: dict[str, Any]) -> None:
    """Writes the checkpoint of `iteration` and removes all but the newest two.

    Raises UserError if the disk is full; older checkpoints stay.
    """
    directory = Path(directory)
    with atomic_file(directory / f"{iteration:08d}.pt") as aside, open(aside, "wb") as file:
        hashing = _Hashing(file)
        try:
            content = {"identity": identity, "iteration": iteration, "state": state}
            torch.save(content, cast(BinaryIO, hashing))
        except RuntimeError as error:  # torch's exception for a failed write
            raise hashing.failure or error from None
        file.write(hashing.digest())
    for _, old in _newest_first(directory)[_KEPT:]:
        old.unlink()


def newest(directory: Path, identity: str) -> tuple[int, dict[str, Any]] | None:
    """Iteration and state of the newest checkpoint that is whole; None if the directory has no checkpoint.

    A damaged one is named on stderr, and the one before it is read. Raises UserError if none of them is
    whole, or if one belongs to another run.
    """
    for leftover in Path(directory).glob(".*.partial"):  # of a run that was killed while it wrote
        leftover.unlink()
    checkpoints = _newest_first(directory)
    for iteration, path in checkpoints:
        try:
            return iteration, read(path, identity)
        except Damaged as error:
            sys.stderr.write(f"{path} is damaged ({error}): falling back to the checkpoint before it.\n")
    if checkpoints:
        raise UserError(
            f"None of the {len(checkpoints)} checkpoints in {directory} is whole.",
            f"Remove {directory} and run again: training starts over.",
        )
    return None


def at(directory: Path, iteration: int, identity: str) -> dict[str, Any]:
    """The state of one iteration: the other workers read the one that rank 0 selected.

    Raises UserError if it is missing.
    """
    path = Path(directory) / f"{iteration:08d}.pt"
    try:
        return read(path, identity)
    except (Damaged, FileNotFoundError) as error:
        raise UserError(
            f"{path}: this worker cannot read the checkpoint that rank 0 resumes from ({error}).",
            "Put the project on storage that all nodes see under the same path.",
        ) from None


def read(path: Path, identity: str) -> dict[str, Any]:
    """The state in a checkpoint, on the CPU. Raises Damaged, and UserError if it belongs to another run."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        body = hashlib.sha256()
        remaining = size - _DIGEST
        while remaining > 0 and (block := file.read(min(remaining, 1 << 20))):
            body.update(block)
            remaining -= len(block)
        if size <= _DIGEST or file.read() != body.digest():
            raise Damaged(f"the sha256 of its {size:,} bytes is not the one it carries")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if content["identity"] != identity:
        raise UserError(
            f"{path} belongs to another run: identity {content['identity']}, this run is {identity}.",
            f"Checkpoints are not moved between runs. Remove {path.parent} and run again.",
        )
    state: dict[str, Any] = content["state"]
    return state


def _newest_first(directory: Path) -> list[tuple[int, Path]]:
    named = ((re.fullmatch(r"(\d{8,})\.pt", path.name), path) for path in Path(directory).glob("*.pt"))
    return sorted(((int(match[1]), path) for match, path in named if match), reverse=True)


class _Hashing:
    """A file that computes the sha256 of what is written to it."""

    def __init__(self, file: Any) -> None:
        self._file, self._sum = file, hashlib.sha256()
        self.failure: OSError | None = None

    def write(self, block: bytes | memoryview) -> int:
        self._sum.update(block)
        try:
            written: int = self._file.write(block)
        except OSError as error:
            self.failure = error
            raise
        return written

    def flush(self) -> None:
        self._file.flush()

    def digest(self) -> bytes:
        return self._sum.digest()
