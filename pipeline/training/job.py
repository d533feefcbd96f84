"""One training as a plain value: picklable, so that any worker can receive it, and complete."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unseen.config.stages import TrainSettings
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen.runtime.trackers import AnyTracker

# As unseen.training.loop.train. None selects that function: only the process that trains imports it, and
# torch.
Loop = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Outputs:
    """Where rank 0 writes the results; absolute paths, because workers run in other directories."""

    model: Path  # directory: recipe.json; weights, last, untrained and perhaps best_on_test .safetensors
    history: Path  # CSV for `dvc plots`
    log: Path  # JSON of times, host and versions; nothing depends on it


@dataclass(frozen=True)
class Job:
    """What to train. `dataset`, `method` and `seed` name the run, as in params.yaml.

    `state` is the root of the training states, state/<dataset>/<method>/<seed>-<hash>/; None keeps none, so
    that a run cannot resume. `outputs` None writes nothing (a trial of a sweep). Outputs need a state, which
    contains the initial weights until the end.
    """

    dataset: str
    method: str
    seed: int
    recipe: Recipe
    root: Path  # of the project; relative paths in a recipe start there
    shards: Path
    state: Path | None
    outputs: Outputs | None
    loader_threads: int | None = None  # of a worker; None: unseen.runtime.cores; never change a batch
    checkpoint_every: int = 100  # iterations; never changes a result
    trackers: tuple[AnyTracker, ...] = ()  # get the numbers (live.py)
    images_per_pass: int | None = None  # of a worker (passes.py): changes results by rounding
    stage_shards: Path | None = None  # a disk of the node (staging.py)
    code: str = ""  # digest of the code that the training can reach

    def __post_init__(self) -> None:
        if self.outputs is not None and self.state is None:
            raise ValueError(f"{self.name} has outputs and no state, which keeps its initial weights")

    @property
    def threads(self) -> int:
        """Of torch, per worker. Ray reserves as many CPUs for it on a cluster."""
        return self.recipe.training.threads

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.method}/{self.seed}"


def located(recipe: Recipe, root: Path) -> Recipe:
    """A recipe with the absolute path of its checkpoint, which is relative to `root`: workers do not start in
    the project root."""
    if recipe.backbone.checkpoint is None:
        return recipe
    backbone = recipe.backbone.model_copy(update={"checkpoint": str(root / recipe.backbone.checkpoint)})
    return recipe.model_copy(update={"backbone": backbone})


def job_of(
    dataset: str,
    method: str,
    seed: int,
    recipe: Recipe,
    root: Path,
    machine: TrainSettings,
    code: str = "",
) -> Job:
    """The job of stage `train`, every path under the project root `root`. `code`: Job.code."""
    root, run = Path(root).resolve(), Path(dataset) / method
    return Job(
        dataset=dataset,
        method=method,
        seed=seed,
        recipe=recipe,
        root=root,
        shards=root / "data/shards" / dataset,
        state=root / "data/state",
        outputs=Outputs(
            model=root / "data/models" / run / str(seed),
            history=root / "data/history" / run / f"{seed}.csv",
            log=root / "data/logs" / run / f"{seed}.json",
        ),
        loader_threads=machine.loader_threads,
        checkpoint_every=machine.checkpoint_every,
        trackers=machine.trackers,
        images_per_pass=machine.images_per_pass,
        stage_shards=None if machine.stage_shards is None else root / machine.stage_shards,
        code=code,
    )


def note_unwatched_checkpoint(recipe: Recipe) -> None:
    """Writes to stderr that stage `resolve`, which records its sha256, does not watch the checkpoint."""
    checkpoint = recipe.backbone.checkpoint
    if checkpoint is not None:
        command = "dvc repro -f -s resolve && dvc repro"
        say(f"note: DVC does not watch {checkpoint}. After a change there: {command}")


def possible_worlds(recipe: Recipe, machine: TrainSettings) -> list[int]:
    """The numbers of workers from `machine.workers` that can take equal slices of the global batch,
    ascending.

    Raises UserError if there is none.
    """
    worlds = [
        world
        for world in range(machine.fewest_workers, machine.most_workers + 1)
        if recipe.batch.size % world == 0
    ]
    if not worlds:
        check_world(recipe, machine.most_workers)
    return worlds


def check_world(recipe: Recipe, world: int) -> None:
    """Raises UserError if `world` workers cannot take equal slices of the global batch. Call it first."""
    batch = recipe.batch
    if batch.size % world:
        divisors = [str(count) for count in range(1, batch.size + 1) if batch.size % count == 0]
        images = f"{batch.size} images ({batch.classes} classes x {batch.images_per_class})"
        raise UserError(
            f"{world} workers cannot share a batch of {images} equally.",
            f"Set train.workers to one of {', '.join(divisors)}, or change batch.classes or "
            "batch.images_per_class of the recipe.",
        )
