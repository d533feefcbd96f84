"""A training on one worker: everything that its loop reads and changes, in one object."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from unseen.config.inputs import digest
from unseen.data.class_split import ClassSplit, hold_out, require_trainable_validation, without_validation
from unseen.data.loader import Sampler, TrainLoader
from unseen.data.sampler import make_sampler
from unseen.data.shards import Shards
from unseen.methods.build import initial_method
from unseen.methods.method import Method
from unseen.methods.settings import Recipe
from unseen.runtime.errors import UserError
from unseen.runtime.parts import load
from unseen.training.background import Background
from unseen.training.checkpoint import Checkpoints
from unseen.training.job import Job, located
from unseen.training.live import Live
from unseen.training.log import Clock
from unseen.training.mining import tuple_sampler
from unseen.training.optimizer import build_optimizer
from unseen.training.pace import CheckpointPace
from unseen.training.passes import require_rows_alone
from unseen.training.precision import with_effective_precision
from unseen.training.record import TrainingRecord
from unseen.training.row_embedder import RowEmbedder
from unseen.training.state import identity, state_directory
from unseen.training.step import Learner
from unseen.training.worker import Worker


@dataclass
class TrainingRun:
    """The job, its worker, the data, the method with its optimizer, and the progress of the run."""

    job: Job
    recipe: Recipe
    worker: Worker
    shards: Shards
    split: ClassSplit
    sampler: Sampler
    loader: TrainLoader
    learner: Learner
    identity: dict[str, Any]  # what determines the result (state.py)
    state: Path | None  # its directory; None for a job that keeps none
    checkpoints: Checkpoints | None  # in `state`
    clock: Clock
    live: Live
    record: TrainingRecord = field(default_factory=TrainingRecord)
    pace: CheckpointPace = field(default_factory=CheckpointPace)
    background: Background = field(default_factory=Background)  # writes the checkpoints

    @property
    def method(self) -> Method:
        return self.learner.method

    @property
    def embedder(self) -> RowEmbedder:
        return RowEmbedder(self.method, self.shards, self.recipe, self.worker)

    @property
    def finished(self) -> bool:
        """Whether the present phase is."""
        return self.record.finished(self.recipe.training)

    @property
    def length(self) -> int:
        """The largest number of steps of the present phase."""
        return self.record.length(self.recipe.training)

    @property
    def is_last_phase(self) -> bool:
        """Whether the present phase gives the result."""
        return self.recipe.training.protocol != "refit" or self.record.is_refit


def begin(job: Job, worker: Worker, clock: Clock) -> TrainingRun:
    """The run before its first step: opens the data, and builds network and optimizer from the job's seed.

    Raises UserError for damaged shards, too few classes or images, and a recipe that makes no method. A
    damaged image is an error at its first read (pipeline/data/shards.py).
    """
    recipe = with_effective_precision(job.recipe, worker.device)
    shards = Shards(job.shards)
    if recipe.training.protocol == "refit":
        require_trainable_validation(shards)
    is_published = recipe.training.protocol == "published"
    share, fold = recipe.training.validation_share, recipe.training.fold
    split = (
        without_validation(shards)
        if is_published
        else hold_out(shards, share, job.seed, fold, of_group=recipe.batch.sampling == "tuples")
    )
    facts = identity(job, shards.fingerprint, worker.device.type, recipe.training.precision)
    sampler, loader, learner = _parts(job, recipe, worker, shards, split)
    state = state_directory(job, facts)
    checkpoints = None if state is None else Checkpoints(state, digest(facts))
    return TrainingRun(
        job=job,
        recipe=recipe,
        worker=worker,
        shards=shards,
        split=split,
        sampler=sampler,
        loader=loader,
        learner=learner,
        identity=facts,
        state=state,
        checkpoints=checkpoints,
        clock=clock,
        live=Live(job, worker.rank),
    )


def second_phase(run: TrainingRun, record: TrainingRecord) -> TrainingRun:
    """The second phase of protocol refit with its `record`: all train classes, and network and optimizer anew
    from the job's seed."""
    split = without_validation(run.shards)
    sampler, loader, learner = _parts(run.job, run.recipe, run.worker, run.shards, split)
    return replace(run, split=split, sampler=sampler, loader=loader, learner=learner, record=record)


def _parts(
    job: Job, recipe: Recipe, worker: Worker, shards: Shards, split: ClassSplit
) -> tuple[Sampler, TrainLoader, Learner]:
    """Sampler, loader and learner of a phase."""
    sampler = _sampler(shards, split, recipe, job.seed)
    place = (worker.rank, worker.world, worker.loader_threads, worker.device.type == "cuda")
    loader = TrainLoader(shards, split.rows, split.labels, sampler, recipe.input, *place)
    learner = _learner(job, recipe, split, worker)
    if recipe.training.module:
        load(recipe.training.module)(learner.method, recipe, shards, split.rows)
    return sampler, loader, learner


def _sampler(shards: Shards, split: ClassSplit, recipe: Recipe, seed: int) -> Sampler:
    if recipe.batch.sampling == "tuples":
        return tuple_sampler(shards, split, recipe, seed)
    return make_sampler(split.labels, recipe.batch, seed)


def _learner(job: Job, recipe: Recipe, split: ClassSplit, worker: Worker) -> Learner:
    method = initial_method(located(job.recipe, job.root), split.classes, len(split.rows), job.seed)
    method = method.to(worker.device)
    if job.images_per_pass is not None:
        require_rows_alone(method)
    optimizer = optimizer_of(method, recipe, worker.device)
    return Learner(method, optimizer, recipe, job.seed, worker.rank, job.images_per_pass)


def optimizer_of(method: Method, recipe: Recipe, device: torch.device) -> torch.optim.Optimizer:
    """The optimizer of a method on `device`.

    Raises UserError for a network that names no layers, if their learning rates differ.
    """
    try:
        layers = [] if recipe.optimizer.layer_decay == 1 else method.backbone.layers()
        return build_optimizer(recipe.optimizer, method.parameter_groups(), device, layers)
    except ValueError as error:
        what = f"optimizer.layer_decay is {recipe.optimizer.layer_decay}: {error}"
        raise UserError(what, "Set optimizer.layer_decay to 1.") from error
