"""One training as a plain value: picklable, so that it travels to any worker, and complete, so that a worker needs nothing else."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.methods import Recipe, parse_recipe
from pipeline.runtime.errors import UserError


@dataclass(frozen=True)
class Outputs:
    """Where rank 0 writes what the training ends with; absolute, because workers run elsewhere."""

    model: Path  # directory: recipe.json; weights, last, untrained and perhaps best_on_test .safetensors
    history: Path  # CSV for `dvc plots`
    log: Path  # JSON of times, host and versions; nothing depends on it


@dataclass(frozen=True)
class Job:
    """What to train. `dataset`, `method` and `seed` name the run (as in params.yaml); `recipe` is resolved, as `model_dump(mode="json")` gives it.

    `state` is the root of the training states, state/<dataset>/<method>/<seed>-<hash>/; None keeps none, so that a run
    cannot resume. `outputs` None writes nothing (a trial of a sweep). Outputs need a state, which contains the initial
    weights until the end.
    """

    dataset: str
    method: str
    seed: int
    recipe: dict[str, Any]
    root: Path  # of the project: what a relative path in a recipe starts from
    shards: Path
    state: Path | None
    outputs: Outputs | None
    threads: int = 1  # of torch, per worker: with another number, sums round differently
    loader_threads: int = 2  # never change a batch
    checkpoint_every: int = 100  # iterations; never changes a result
    code: str = ""  # digest of the code that the training can reach

    def __post_init__(self) -> None:
        if self.outputs is not None and self.state is None:
            raise ValueError(f"{self.name} has outputs and no state, which keeps its initial weights")

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}/{self.seed}"

    def resolved(self) -> Recipe:
        return parse_recipe(self.recipe)

    def located(self) -> Recipe:
        """The recipe with an absolute path of the backbone's checkpoint: workers do not start in the project root."""
        recipe = self.resolved()
        if recipe.backbone.checkpoint is None:
            return recipe
        backbone = recipe.backbone.model_copy(update={"checkpoint": str(Path(self.root) / recipe.backbone.checkpoint)})
        return recipe.model_copy(update={"backbone": backbone})


def job_of(
    dataset: str,
    method: str,
    seed: int,
    recipe: Recipe,
    root: Path,
    *,
    threads: int = 1,
    loader_threads: int = 2,
    checkpoint_every: int = 100,
    code: str = "",
) -> Job:
    """The job of stage `train`, every path under the project root `root`."""
    root, run = Path(root).resolve(), Path(dataset) / method
    return Job(
        dataset=dataset,
        method=method,
        seed=seed,
        recipe=recipe.model_dump(mode="json"),
        root=root,
        shards=root / "data/shards" / dataset,
        state=root / "data/state",
        outputs=Outputs(
            model=root / "data/models" / run / str(seed),
            history=root / "data/history" / run / f"{seed}.csv",
            log=root / "data/logs" / run / f"{seed}.json",
        ),
        threads=threads,
        loader_threads=loader_threads,
        checkpoint_every=checkpoint_every,
        code=code,
    )


def say_unwatched(recipe: Recipe, stage: str) -> None:
    """Says on stderr that DVC does not see a change of the checkpoint that a training started from: it is named in params.yaml, not in dvc.yaml."""
    if recipe.backbone.checkpoint is not None:
        sys.stderr.write(f"note: DVC does not watch {recipe.backbone.checkpoint}. After a change there: dvc repro -f -s {stage} && dvc repro\n")


def check_world(recipe: Recipe, world: int) -> None:
    """Raises UserError when `world` workers cannot take equal slices of the global batch. Called before anything starts."""
    batch = recipe.batch
    if batch.size % world:
        fitting = [str(count) for count in range(1, batch.size + 1) if batch.size % count == 0]
        raise UserError(
            f"{world} workers cannot share a batch of {batch.size} images ({batch.classes} classes x {batch.images_per_class}) equally.",
            f"Set train.workers to one of {', '.join(fitting)}, or change batch.classes or batch.images_per_class of the recipe.",
        )
