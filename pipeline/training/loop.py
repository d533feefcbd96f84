"""A training from its job to its outs, on one of `world` workers. Read from top to bottom; nothing here knows Ray.

Every worker runs the same loop on the same numbers: same batches (its own slice of each), same loss, same decisions. Rank 0 alone writes.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pipeline.config.methods import Recipe
from pipeline.data.loader import Sampler, TrainLoader
from pipeline.data.sampler import make_sampler
from pipeline.data.shards import Shards
from pipeline.data.tuples import TupleSampler
from pipeline.methods.artifact import save_recipe, save_weights
from pipeline.methods.build import initial_method
from pipeline.methods.method import Method
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, write_json
from pipeline.runtime.progress import Progress
from pipeline.training import checkpoint, history
from pipeline.training.gather import assert_same_on_all_workers, world_size
from pipeline.training.job import Job, check_world
from pipeline.training.log import Clock, log_of
from pipeline.training.mining import mine, tuple_sampler
from pipeline.training.optimizer import build_optimizer
from pipeline.training.state import digest, identity, other_states, remove_states, state_directory
from pipeline.training.step import Step, train_step
from pipeline.training.validation import hold_out, validate, watch_test

Report = Callable[[history.Row], None]


@dataclass
class Run:
    """What a run has come to, beside the weights and the optimizer: plain values that a checkpoint holds as they are."""

    iteration: int = 0  # finished steps
    rows: list[history.Row] = field(default_factory=list)
    window: history.Window = field(default_factory=dict)
    best: float | None = None  # selection metric of the best validation
    best_iteration: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    best_on_test: float | None = None  # the same of the test classes, where training.watch_test asks for it: reported, never used
    best_on_test_weights: dict[str, Tensor] = field(default_factory=dict)
    waited: int = 0  # validations since the best one
    tuples: dict[int, Tensor] = field(default_factory=dict)  # of the epoch that is under way, where there are such
    seconds: dict[str, float] = field(default_factory=dict)
    resumed_at: list[int] = field(default_factory=list)

    def finished(self, recipe: Recipe) -> bool:
        patience = recipe.training.patience
        return self.iteration >= recipe.training.iterations or (patience is not None and self.waited >= patience)


def train(job: Job, rank: int, world: int, device: torch.device, report: Report | None = None) -> history.Row:
    """Trains `job` and writes its outs; resumes where an earlier run of the same job stopped.

    Returns the row of the last validation (see history.py) with `best`, the selection metric of the best one, and its `best_iteration`.

    `world` workers share a process group (none is needed for one). `report` is called on every worker after each validation with iteration, epoch,
    loss, the validation metrics, and `best`, the selection metric of the best validation so far. Raises UserError for bad data, a batch that the
    workers cannot share, a loss that is not finite, a full disk, a damaged state.
    """
    recipe = job.resolved()
    check_world(recipe, world)
    assert world == world_size(), f"{world} workers, but a process group of {world_size()}"
    settings, clock = recipe.training, Clock()
    with reproducible(device, job.threads):
        with clock.phase("start_up"):
            shards = Shards(job.shards, verify=rank == 0)
            split = hold_out(shards, recipe, job.seed)
            tuples = recipe.batch.sampling == "tuples"
            sampler: Sampler = tuple_sampler(shards, split, recipe, job.seed) if tuples else make_sampler(split.labels, recipe.batch, job.seed)
            loader = TrainLoader(shards, split.rows, split.labels, sampler, recipe.input, rank, world, job.loader_threads)
            method = initial_method(job.located(), split.classes, len(split.rows), job.seed).to(device)
            if device.type == "cuda":
                method.backbone.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch has it, its stubs do not
            if settings.compile:
                method.backbone.compile()
            optimizer = build_optimizer(recipe.optimizer, method.parameter_groups(), device, _layers(method, recipe))
            facts = identity(job, shards.fingerprint, world, device.type)
            state, name = state_directory(job, facts), digest(facts)
            run = _resume(state, name, method, optimizer, rank, device) or Run()
            clock.seconds |= {phase: seconds + clock.seconds.get(phase, 0.0) for phase, seconds in run.seconds.items()}

        def name_rows(positions: Sequence[int] | None) -> str:
            drawn = split.rows[sampler.draw(run.iteration).positions]
            return _named(shards, [int(row) for row in (drawn if positions is None else drawn[list(positions)])])

        def keep() -> None:
            if state is not None:
                with clock.phase("checkpoint"):
                    _save(state, name, run, method, optimizer, clock, rank)

        def judge(learning_rate: float) -> None:
            with clock.phase("validation"):
                assert_same_on_all_workers(method)
                metrics = validate(method, shards, split, recipe, rank, device, job.loader_threads)
            epoch = run.iteration / sampler.steps_per_epoch
            run.rows.append(history.close(run.window, run.iteration, epoch, learning_rate, metrics))
            _keep_best(run, metrics[settings.selection_metric], recipe, method, rank)
            if settings.watch_test:
                on_test = watch_test(method, shards, recipe, rank, device, job.loader_threads)[settings.selection_metric]
                if run.best_on_test is None or on_test > run.best_on_test:
                    run.best_on_test, run.best_on_test_weights = on_test, _weights(method) if rank == 0 else {}
            keep()
            if report is not None:
                report({"iteration": run.iteration, "epoch": epoch, "loss": run.rows[-1]["loss"], **metrics, "best": run.best or 0.0})

        def begin() -> int:
            """The step up to which batches can be drawn: tuples an epoch at a time, because the network at its beginning finds their negatives."""
            if not isinstance(sampler, TupleSampler):
                return settings.iterations
            epoch = run.iteration // sampler.steps_per_epoch
            with clock.phase("mining"):
                if epoch not in run.tuples:
                    run.tuples = {epoch: mine(sampler, epoch, method, shards, split.rows, recipe, rank, device, job.loader_threads)}
                sampler.begin(epoch, run.tuples[epoch].numpy())
            return min(settings.iterations, (epoch + 1) * sampler.steps_per_epoch)

        method.train()
        if settings.iterations == 0 and not run.rows:
            judge(0.0)
        with _progress(job, recipe, run, rank) as progress:
            while not run.finished(recipe):
                stop = begin()
                batches = loader.iterate(run.iteration, stop)
                with contextlib.closing(batches):  # which ends its threads
                    while run.iteration < stop and not run.finished(recipe):
                        with clock.phase("data_wait"):
                            batch = next(batches)
                        assert batch.step == run.iteration, f"the loader gave the batch of step {batch.step} to step {run.iteration}"
                        with clock.phase("step"):
                            seen = [row[settings.selection_metric] for row in run.rows]
                            place = (recipe, job.seed, run.iteration, rank)
                            step = train_step(method, optimizer, batch.images, batch.labels, batch.samples, *place, name_rows, seen)
                        run.iteration += 1
                        history.add(run.window, step)
                        if run.iteration % settings.validate_every == 0 or run.iteration == settings.iterations:
                            judge(step.learning_rate)
                        elif run.iteration % settings.checkpoint_every == 0:
                            keep()
                        if progress is not None:
                            progress.advance(recipe.batch.size, _note(step, run))

        if rank == 0 and job.outputs is not None:
            data = split.classes, len(split.rows), facts["backbone"]
            _write_outs(job, run, method, data, clock, world, device, sampler.excluded_classes)
        if world > 1:
            dist.barrier()  # no worker leaves before the outs are there
        if rank == 0 and state is not None:
            remove_states(state)
    assert run.best is not None
    return {"iteration": run.iteration, "best_iteration": run.best_iteration, "best": run.best, **run.rows[-1]}


@contextlib.contextmanager
def reproducible(device: torch.device, threads: int) -> Iterator[None]:
    """Same bytes for same inputs: on a CPU this takes deterministic kernels and one number of threads. A GPU repeats closely, not bit for bit."""
    flags: Any = torch.utils.deterministic
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), flags.fill_uninitialized_memory
    torch.set_num_threads(threads)
    if device.type == "cpu":
        torch.use_deterministic_algorithms(True)
        flags.fill_uninitialized_memory = False  # a debugging aid that costs time
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
        flags.fill_uninitialized_memory = before[2]


def _layers(method: Method, recipe: Recipe) -> list[list[torch.nn.Parameter]]:
    """The backbone's layers where their learning rates differ; not every network says what its layers are."""
    if recipe.optimizer.layer_decay == 1:
        return []
    try:
        return method.backbone.layers()
    except ValueError as error:
        raise UserError(f"optimizer.layer_decay is {recipe.optimizer.layer_decay}: {error}", "Set optimizer.layer_decay to 1.") from error


def _keep_best(run: Run, metric: float, recipe: Recipe, method: Method, rank: int) -> None:
    """Keeps the weights of the best validation (the earliest of equals), on rank 0, and counts the validations without a gain."""
    if run.best is None or metric > run.best + recipe.training.minimum_gain:
        run.best, run.best_iteration, run.waited = metric, run.iteration, 0
        if rank == 0:
            run.best_weights = _weights(method)
    else:
        run.waited += 1


def _weights(method: Method) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in method.state_dict().items()}


def _resume(directory: Path | None, name: str, method: Method, optimizer: torch.optim.Optimizer, rank: int, device: torch.device) -> Run | None:
    """Loads the newest checkpoint into method and optimizer, the one that rank 0 finds on every worker. None where there is nothing to resume."""
    if directory is None:
        return None
    found = checkpoint.newest(directory, name) if rank == 0 else None
    chosen = torch.tensor([-1 if found is None else found[0]], device=device)
    if world_size() > 1:
        dist.broadcast(chosen, src=0)
    iteration = int(chosen)
    if iteration < 0:
        if rank == 0 and (others := other_states(directory)):
            sys.stderr.write(f"{others[0].parent}: recipe, data or code changed since a run that did not end; starting from the first step.\n")
        return None
    saved = found[1] if found is not None else checkpoint.at(directory, iteration, name)
    method.load_state_dict(saved["method"])
    optimizer.load_state_dict(saved["optimizer"])
    run = Run(**saved["run"])
    run.resumed_at.append(iteration)
    if rank == 0:
        sys.stderr.write(f"resuming at step {iteration} from {directory}\n")
    return run


def _save(directory: Path, name: str, run: Run, method: Method, optimizer: torch.optim.Optimizer, clock: Clock, rank: int) -> None:
    run.seconds = dict(clock.seconds)
    if rank == 0:
        content = {"method": method.state_dict(), "optimizer": optimizer.state_dict(), "run": vars(run)}
        checkpoint.save(directory, run.iteration, name, content)
    if world_size() > 1:
        dist.barrier()  # no worker runs ahead of the state it could be asked to resume from


def _write_outs(
    job: Job,
    run: Run,
    method: Method,
    data: tuple[int, int, str | None],  # classes and images trained on, sha256 of the backbone's checkpoint
    clock: Clock,
    world: int,
    device: torch.device,
    excluded: int,
) -> None:
    assert job.outputs is not None
    recipe = job.resolved()
    with atomic_directory(job.outputs.model) as aside:
        save_weights(aside / "last.safetensors", method)
        if run.best_on_test is not None:
            method.load_state_dict(run.best_on_test_weights)
            save_weights(aside / "best_on_test.safetensors", method)
        method.load_state_dict(run.best_weights)
        save_weights(aside / "weights.safetensors", method)
        save_recipe(aside / "recipe.json", recipe, job.dataset, job.seed, *data)
    history.write_history(job.outputs.history, run.rows)
    trained = run.iteration * recipe.batch.size
    found = {"iterations": run.iteration, "best_iteration": run.best_iteration, "resumed_at": run.resumed_at, "classes_with_one_image": excluded}
    write_json(job.outputs.log, log_of(clock.seconds, trained, world, job.threads, device, **found))


def _progress(job: Job, recipe: Recipe, run: Run, rank: int) -> contextlib.AbstractContextManager[Progress | None]:
    if rank != 0:
        return contextlib.nullcontext()
    progress = Progress(f"train {job.name}", recipe.training.iterations * recipe.batch.size, "images")
    progress.resume_at(run.iteration * recipe.batch.size)
    return progress


def _note(step: Step, run: Run) -> str:
    terms = "" if len(step.terms) < 2 else f" ({', '.join(f'{name} {value:.4g}' for name, value in step.terms.items())})"
    recall = f"  validation R@1 {run.rows[-1]['recall_at_1']:.1%}" if run.rows else ""
    return f"step {run.iteration}  loss {step.loss:.4g}{terms}{recall}"


def _named(shards: Shards, rows: list[int]) -> str:
    shown = ", ".join(f"row {row} ({shards.sources[row]})" for row in rows[:8])
    return shown + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
