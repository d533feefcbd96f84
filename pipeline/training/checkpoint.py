"""Checkpoints: the two newest of a run. Each file is written completely or not at all and ends with its
sha256.

torch's reader does not detect a flipped bit in a weight; the digest does. Files are read as weights only:
reading one runs no code. Tensors that seldom change are in files of their own (blocks.py), which checkpoints
share. They are written first, so that a complete checkpoint has all its blocks.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from torch import Tensor

from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file
from unseen.runtime.names import say
from unseen.training import blocks
from unseen.training.blocks import Damaged, Manifest

_KEPT = 2
_DIGEST = 32  # bytes of a sha256

Parts = Mapping[str, Mapping[str, Tensor]]  # tensors in blocks, by the name of their group
State = dict[str, Any]  # of a run, with its parts


class Checkpoints:
    """The checkpoints of the run `identity` in a directory.

    Blocks that this object has read or written are not written again, and removed with their last checkpoint.
    """

    def __init__(self, directory: Path, identity: str) -> None:
        self.directory, self.identity = Path(directory), identity
        self._blocks: dict[int, set[str]] = {}  # of the checkpoints that this object has read or written
        self._last: dict[str, tuple[Mapping[str, Tensor], Manifest]] = {}  # the parts that it wrote last

    def save(self, iteration: int, state: State, parts: Parts) -> None:
        """Writes the checkpoint of `iteration`, with tensors on the CPU, and removes all but the newest two.

        A part that is the same object as in the last checkpoint is not compared. Raises UserError if the disk
        is full; older checkpoints stay.
        """
        present = set().union(*self._blocks.values())
        for name, tensors in parts.items():
            if name not in self._last or self._last[name][0] is not tensors:
                self._last[name] = tensors, blocks.write(self.directory, tensors, present)
        manifests = {name: self._last[name][1] for name in parts}
        content = {"identity": self.identity, "iteration": iteration, "state": state, "parts": manifests}
        _write(self.directory / f"{iteration:08d}.pt", content)
        self._blocks[iteration] = _blocks(manifests)
        self._remove_old()

    def newest(self) -> tuple[int, State] | None:
        """Iteration and state of the newest checkpoint that is whole; None if there is no checkpoint.

        A damaged one is named on stderr, and the one before it is read. Raises UserError if none of them is
        whole, or if one belongs to another run.
        """
        for leftover in self.directory.glob(".*.partial"):  # of a run that was killed while it wrote
            leftover.unlink()
        checkpoints = _newest_first(self.directory)
        for iteration, path in checkpoints:
            try:
                state, manifests = _read(path, self.identity)
            except Damaged as error:
                say(f"{path} is damaged ({error}): falling back to the checkpoint before it.")
            else:
                self._blocks[iteration] = _blocks(manifests)
                return iteration, state
        if checkpoints:
            raise UserError(
                f"None of the {len(checkpoints)} checkpoints in {self.directory} is whole.",
                f"Remove {self.directory} and run again: training starts over.",
            )
        return None

    def at(self, iteration: int) -> State:
        """The state of one iteration: the other workers read the one that rank 0 selected.

        Raises UserError if it is missing.
        """
        path = self.directory / f"{iteration:08d}.pt"
        try:
            return read(path, self.identity)
        except (Damaged, FileNotFoundError) as error:
            raise UserError(
                f"{path}: this worker cannot read the checkpoint that rank 0 resumes from ({error}).",
                "Put the project on storage that all nodes see under the same path.",
            ) from None

    def _remove_old(self) -> None:
        checkpoints = _newest_first(self.directory)
        for iteration, old in checkpoints[_KEPT:]:
            old.unlink()
            self._blocks.pop(iteration, None)
        if all(iteration in self._blocks for iteration, _ in checkpoints[:_KEPT]):
            blocks.remove_unused(self.directory, set().union(*self._blocks.values()))


def read(path: Path, identity: str) -> State:
    """The state in a checkpoint, with its parts, on the CPU. Raises Damaged, and UserError if it belongs to
    another run."""
    return _read(path, identity)[0]


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as aside, open(aside, "wb") as file:
        hashing = _Hashing(file)
        try:
            torch.save(content, cast(BinaryIO, hashing))
        except RuntimeError as error:  # torch's exception for a failed write
            raise hashing.failure or error from None
        file.write(hashing.digest())


def _blocks(manifests: Mapping[str, Manifest]) -> set[str]:
    return {digest for manifest in manifests.values() for digest in manifest["blocks"]}


def _read(path: Path, identity: str) -> tuple[State, dict[str, Manifest]]:
    """The state and the manifests of its parts."""
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
    manifests: dict[str, Manifest] = content["parts"]
    parts = {name: blocks.read(path.parent, manifest) for name, manifest in manifests.items()}
    return content["state"] | parts, manifests


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
