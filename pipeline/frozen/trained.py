"""What a rung that is trained does: trains on some photos, embeds others, and writes its model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from unseen.methods.settings import Recipe


class Task(NamedTuple):
    """What is trained: on the photos `rows` with `labels`, 0 to C - 1. The photos `searched` are embedded
    after each number of steps in `lengths`, ascending."""

    rows: Int64[np.ndarray, "N"]
    labels: Int64[np.ndarray, "N"]
    lengths: Sequence[int]
    searched: Int64[np.ndarray, "_"]


class Trained(NamedTuple):
    """A map or head after `steps` training steps."""

    steps: int
    vectors: Float32[np.ndarray, "_ D"]  # of the photos that are searched, with unit rows
    parameters: Any  # for Trainer.write


@runtime_checkable
class Trainer(Protocol):
    """A rung with its features of all photos."""

    name: str
    lengths: tuple[int, ...]  # numbers of steps, ascending
    seconds: float  # of CPU, for its features
    digest: str  # sha256 of what determines its features of a photo, and of the features that it starts with

    def recipe(self, photos: int, steps: int) -> Recipe:
        """The settings of a training of `steps` steps on a number of photos."""

    def train(self, task: Task) -> list[Trained]:
        """The part after each number of steps. The parameters may be those after the last one."""

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """Adds the trained part to the directory of the network, `model`.

        photos, classes: on which it was trained. measured: whether its accuracy on the test classes was."""
