"""The progress of a training: plain values, stored in a checkpoint with the weights and the optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from unseen.methods.settings import Training
from unseen.training import history


@dataclass
class TrainingRecord:
    iteration: int = 0  # finished steps of this phase; on a GPU the last one may be queued
    is_refit: bool = False  # the second phase of protocol refit, on all train classes
    steps_before: int = 0  # finished steps of the first phase, in the second
    rows: list[history.Row] = field(default_factory=list)  # of both phases, one every `validate_every` steps
    window: history.Window = field(default_factory=dict)  # of the steps since the last row
    best: float | None = None  # selection metric of the best validation
    best_iteration: int = 0  # its step; the length of the second phase
    best_weights: dict[str, Tensor] = field(default_factory=dict)  # on rank 0
    waited: int = 0  # validations since the best one
    # selection metric on the test classes (training.watch_test); it selects nothing
    best_on_test: float | None = None
    best_on_test_weights: dict[str, Tensor] = field(default_factory=dict)  # on rank 0
    tuples: dict[int, Tensor] = field(default_factory=dict)  # of the current epoch, if batches are tuples
    seconds: dict[str, float] = field(default_factory=dict)  # per phase
    resumed_at: list[int] = field(default_factory=list)  # iterations
    untrained: str = ""  # sha256 of the stored initial weights, if the job has outputs; on rank 0

    @property
    def total(self) -> int:
        """Finished steps of all phases."""
        return self.steps_before + self.iteration

    def length(self, training: Training) -> int:
        """The largest number of steps of this phase."""
        return self.best_iteration if self.is_refit else training.iterations

    def finished(self, training: Training) -> bool:
        """Whether all steps of this phase are done, or `patience` validations brought no gain."""
        stalled = not self.is_refit and training.patience is not None and self.waited >= training.patience
        return stalled or self.iteration >= self.length(training)

    def validations(self, metric: str) -> Sequence[float]:
        """`metric` of each validation up to the present step; in the second phase those of the first, so that
        schedule `plateau` repeats its learning rates."""
        return [row[metric] for row in self.rows if metric in row and row["iteration"] <= self.iteration]
