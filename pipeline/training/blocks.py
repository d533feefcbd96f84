"""Tensors of a checkpoint in files of at most SIZE bytes, named by their sha256: equal content is written
once.

For tensors that seldom change (weights of the best validation) or change in places (a memory of
embeddings). A file is written completely or not at all, and no file is altered later.
"""

import hashlib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unseen.runtime.files import atomic_file

SIZE = 1 << 22  # bytes: few files, and little is written again after a change of a few rows
Manifest = dict[str, Any]  # plain values: `tensors`, name, type and shape of each; `blocks`, their digests


class Damaged(Exception):
    """A file of a checkpoint is missing, truncated or altered."""


def write(directory: Path, tensors: Mapping[str, Tensor], present: Collection[str]) -> Manifest:
    """Writes tensors on the CPU, without the blocks that are `present` in `directory`.

    Raises UserError if the disk is full.
    """
    digests = []
    for block in _blocks(tensors):
        digests.append(hashlib.sha256(block).hexdigest())
        if digests[-1] not in present:
            with atomic_file(_path(directory, digests[-1])) as aside:
                aside.write_bytes(block)
    kinds = [(name, str(t.dtype).removeprefix("torch."), list(t.shape)) for name, t in tensors.items()]
    return {"tensors": kinds, "blocks": digests}


def read(directory: Path, manifest: Manifest) -> dict[str, Tensor]:
    """The tensors that `write` stored. Raises Damaged."""
    pieces = [torch.empty(0, dtype=torch.uint8)]
    for digest in manifest["blocks"]:
        if not re.fullmatch("[0-9a-f]{64}", digest):
            raise Damaged(f"{digest!r} is not a sha256 of a block")
        path = _path(directory, digest)
        try:
            block = path.read_bytes()
        except FileNotFoundError:
            raise Damaged(f"{path.name} is missing") from None
        if hashlib.sha256(block).hexdigest() != digest:
            raise Damaged(f"{path.name} has another sha256 than its name")
        pieces.append(torch.frombuffer(bytearray(block), dtype=torch.uint8))
    content = torch.cat(pieces)
    tensors, start = {}, 0
    for name, kind, shape in manifest["tensors"]:
        dtype = getattr(torch, kind, None)
        if not isinstance(dtype, torch.dtype):
            raise Damaged(f"tensor {name} has the unknown type {kind!r}")
        size = math.prod(shape) * dtype.itemsize
        if start + size > len(content):
            raise Damaged(f"tensor {name} is longer than its blocks")
        tensors[name] = content[start : start + size].clone().view(dtype).reshape(shape)
        start += size
    return tensors


def remove_unused(directory: Path, used: Collection[str]) -> None:
    """Removes the blocks that are not `used`."""
    for path in directory.glob("*.block"):
        if path.stem not in used:
            path.unlink()


def _path(directory: Path, digest: str) -> Path:
    return directory / f"{digest}.block"


def _blocks(tensors: Mapping[str, Tensor]) -> Iterator[bytearray]:
    """The bytes of all tensors one after the other, SIZE at a time."""
    block = bytearray()
    for tensor in tensors.values():
        octets = tensor.contiguous().flatten().view(torch.uint8).numpy().data
        while len(octets):
            room = SIZE - len(block)
            block += octets[:room]
            octets = octets[room:]
            if len(block) == SIZE:
                yield block
                block = bytearray()
    if block:
        yield block
