"""What a rung that is trained does: trains on some photos, embeds others, and writes its model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64


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

    def train(
        self,
        rows: Int64[np.ndarray, "_"],
        labels: Int64[np.ndarray, "_"],
        lengths: Sequence[int],
        searched: Int64[np.ndarray, "_"],
    ) -> list[Trained]:
        """Trains on the photos `rows` with these labels, 0 to C - 1, and embeds the photos `searched` after
        each number of steps in `lengths`. The parameters may be those after the last one."""

    def write(self, model: Path, trained: Trained, photos: int, classes: int, measured: bool) -> None:
        """Adds the trained part to the directory of the network, `model`.

        photos, classes: on which it was trained. measured: whether its accuracy on the test classes was."""
