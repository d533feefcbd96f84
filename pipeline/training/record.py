"""The progress of a training: plain values, stored in a checkpoint with the weights and the optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from pipeline.config.blocks import Training
from pipeline.training import history
from pipeline.training.step import Step


@dataclass
class Record:
    iteration: int = 0  # finished steps
    rows: list[history.Row] = field(default_factory=list)  # one per validation
    window: history.Window = field(default_factory=dict)  # of the steps since the last row
    best: float | None = None  # selection metric of the best validation
    best_iteration: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)  # on rank 0
    waited: int = 0  # validations since the best one
    best_on_test: float | None = (
        None  # selection metric on the test classes (training.watch_test); it selects nothing
    )
    best_on_test_weights: dict[str, Tensor] = field(default_factory=dict)  # on rank 0
    tuples: dict[int, Tensor] = field(default_factory=dict)  # of the current epoch, if batches are tuples
    seconds: dict[str, float] = field(default_factory=dict)  # per phase
    resumed_at: list[int] = field(default_factory=list)  # iterations
    untrained: str = ""  # sha256 of the stored initial weights, if the job has outputs; on rank 0

    def add(self, step: Step) -> None:
        """Counts a finished step."""
        self.iteration += 1
        history.add(self.window, step)

    def finished(self, training: Training) -> bool:
        """Whether all iterations are done, or `patience` validations brought no gain."""
        stalled = training.patience is not None and self.waited >= training.patience
        return stalled or self.iteration >= training.iterations

    def validations(self, metric: str) -> Sequence[float]:
        """`metric` of each validation so far."""
        return [row[metric] for row in self.rows]
