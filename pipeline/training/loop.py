"""A training from its job to its outputs, on one of `world` workers; read from top to bottom.

Every worker runs the same loop on the same numbers: same batches (its own slice of each), same loss, same
decisions. Rank 0 alone writes.
"""

import contextlib
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from unseen.data.loader import TrainBatch
from unseen.data.tuples import TupleSampler
from unseen.methods.artifact import saved_state
from unseen.methods.method import Method
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.device.world import fixed_world, world_size
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress
from unseen.runtime.stage import ending_late
from unseen.training import history
from unseen.training.gather import assert_same_on_all_workers
from unseen.training.job import Job, check_world
from unseen.training.log import Clock
from unseen.training.mining import mine
from unseen.training.outputs import write_outputs
from unseen.training.reproducible import reproducible
from unseen.training.resume import save, save_is_due, start_or_resume, start_refit
from unseen.training.run import TrainingRun, begin
from unseen.training.state import remove_states
from unseen.training.step import NotFinite, Step, SubmittedStep, train_step
from unseen.training.transfer import moved
from unseen.training.validation import METRICS, validate, watch_test
from unseen.training.worker import Worker, stays

Report = Callable[[history.Row], None]


def train(
    job: Job,
    rank: int,
    world: int,
    device: torch.device,
    report: Report | None = None,
    preempted: Callable[[], bool] = stays,
) -> history.Row:
    """Trains `job` and writes its outputs; resumes an earlier, killed run of the same job.

    `world` workers share a process group; one worker needs none. `report` is called on every worker for each
    row of the history with iteration, epoch, loss and the validation metrics. A resumed run reports the rows
    before its checkpoint again: the receiver may have lost them. Returns the last row (history.py) with
    `best_iteration` (without validation the last one) and `best`, the selection metric of the best
    validation, if there was one. While `preempted()`, every step has a checkpoint.

    Raises UserError for bad data, a batch that the workers cannot share, a loss that is not finite, a full
    disk, and a damaged state, and RuntimeError if the process group is destroyed.
    """
    check_world(job.recipe, world)
    assert world == world_size(), f"{world} workers, but a process group of {world_size()}"
    clock = Clock()
    with fixed_world(), reproducible(device, job.threads):
        with clock.phase("start_up"):
            loader_threads = job.loader_threads or loader_threads_of(world, device.type)
            run = start_or_resume(begin(job, Worker(rank, world, device, loader_threads, preempted), clock))
        for row in run.record.rows:
            _report(row, report)
        with run.background:
            _train_phase(run, report)
            if not run.is_last_phase:
                with clock.phase("start_up"):
                    run = start_refit(run)
                _train_phase(run, report)
            with clock.phase("checkpoint"):
                run.background.wait()
            _end(run)
    best = {} if run.record.best is None else {"best": run.record.best}
    return {"best_iteration": run.record.best_iteration, **best, **run.record.rows[-1]}


def _train_phase(run: TrainingRun, report: Report | None) -> None:
    """Trains to the end of the present phase."""
    run.method.train()
    if run.recipe.training.iterations == 0 and not run.record.rows:
        _end_row(run, 0.0, report)
    with _progress(run) as progress:
        while not run.finished:
            _train_until(run, _begin_epoch(run), report, progress)


def _begin_epoch(run: TrainingRun) -> int:
    """The step up to which batches can be drawn.

    Tuples are mined an epoch at a time, by the network at its beginning. Other batches depend on no network.
    """
    record, sampler = run.record, run.sampler
    if not isinstance(sampler, TupleSampler):
        return run.length
    epoch = record.iteration // sampler.steps_per_epoch
    with run.clock.phase("mining"):
        if epoch not in record.tuples:
            record.tuples = {epoch: mine(sampler, epoch, run.embedder, run.split.rows)}
        sampler.begin(epoch, record.tuples[epoch].numpy())
    return min(run.length, (epoch + 1) * sampler.steps_per_epoch)


def _train_until(run: TrainingRun, stop: int, report: Report | None, progress: Progress) -> None:
    """Takes the steps before `stop`, or fewer if validations bring no gain.

    The numbers of a step are read after the next step is queued, so that a GPU does not wait for the host;
    before a row of the history ends, and before a checkpoint is written, those of all steps. Only rank 0
    writes checkpoints, so another worker can read the numbers of such a step later. Reads communicate
    nothing. SIGTERM to a stage ends it after the present step and a checkpoint of it.
    """
    record, training = run.record, run.recipe.training
    batches = run.loader.iterate(record.iteration, stop)
    unread: SubmittedStep | None = None
    note, ends = "", False
    with contextlib.closing(batches), ending_late() as terminated:  # ends the loader's threads
        on_device = moved(batches, run.worker.device)
        while record.iteration < stop and not run.finished and not ends:
            run.background.raise_failure()
            with run.clock.phase("data_wait"):
                batch = next(on_device)
            with run.clock.phase("step"):
                submitted = _submit(run, batch)
            record.iteration += 1
            row_ends = record.iteration % training.validate_every == 0 or record.iteration == run.length
            at_interval = record.iteration % run.job.checkpoint_every == 0
            ends = terminated()
            saves = not row_ends and (run.worker.preempted() or (at_interval and save_is_due(run)))
            reads_all = row_ends or saves or ends or record.iteration == stop
            with run.clock.phase("step"):
                for each in filter(None, (unread, submitted if reads_all else None)):
                    step = _numbers(run, each)
                    history.add(record.window, step)
                    note = _note(step, run)
            unread = None if reads_all else submitted
            if row_ends:
                _end_row(run, submitted.learning_rate, report)
            elif saves:
                save(run)
            progress.advance(run.recipe.batch.size, note)
        if ends:
            save(run)


def _submit(run: TrainingRun, batch: TrainBatch) -> SubmittedStep:
    """Queues one step. Raises UserError that names images if a number on a CPU is not finite."""
    iteration = run.record.iteration
    assert batch.step == iteration, f"the loader gave the batch of step {batch.step} to step {iteration}"
    try:
        return train_step(run.learner, batch, run.record.validations(run.recipe.training.selection_metric))
    except NotFinite as error:
        raise _not_finite(run, iteration, error) from None


def _numbers(run: TrainingRun, submitted: SubmittedStep) -> Step:
    """The numbers of a queued step. Raises UserError that names images if one is not finite."""
    try:
        return submitted.result()
    except NotFinite as error:
        raise _not_finite(run, submitted.number, error) from None


def _not_finite(run: TrainingRun, iteration: int, error: NotFinite) -> UserError:
    numbers = ", ".join(f"{name} = {value}" for name, value in error.numbers.items())
    drawn = run.split.rows[run.sampler.draw(iteration).positions]
    images = f"Its images: {_named(run, drawn.tolist())}."
    if error.positions:
        count, names = len(error.positions), _named(run, drawn[error.positions].tolist())
        images = f"The outputs of {count} of its images are not finite: {names}."
    return UserError(
        f"Step {iteration}: {numbers}. {images}",
        "Look at these images; otherwise lower optimizer.learning_rate, lengthen schedule.warmup, or set "
        "training.precision to float32.",
    )


def _end_row(run: TrainingRun, learning_rate: float, report: Report | None) -> None:
    """Ends a row of the history, validates if classes are held out, keeps the weights if they are the best so
    far, saves, and reports."""
    record, training = run.record, run.recipe.training
    metrics: dict[str, float] = {}
    of_test: dict[str, float] = {}
    with run.clock.phase("validation"):
        assert_same_on_all_workers(run.method)
        if len(run.split.validation_rows):
            metrics = validate(run.embedder, run.split)
        if training.watch_test and run.is_last_phase:
            of_test = watch_test(run.embedder)
    epoch = record.iteration / run.sampler.steps_per_epoch
    phase = 1 + record.is_refit if training.protocol == "refit" else None
    measured = metrics | {f"test_{name}": value for name, value in of_test.items()}
    record.rows.append(history.close(record.window, record.total, epoch, learning_rate, measured, phase))
    if metrics:
        _keep_best(run, metrics[training.selection_metric])
    elif training.protocol == "published":
        record.best_iteration = record.iteration
    if of_test:
        _keep_best_on_test(run, of_test[training.selection_metric])
    if run.worker.preempted() or save_is_due(run):
        save(run)
    run.live.show(record.rows)
    _report(record.rows[-1], report)


def _report(row: history.Row, report: Report | None) -> None:
    if report is not None:
        report({name: row[name] for name in ("iteration", "epoch", "loss", *METRICS) if name in row})


def _keep_best(run: TrainingRun, metric: float) -> None:
    """Keeps the weights of the best validation, the earliest of equals; counts validations without a gain."""
    record = run.record
    if record.best is not None and metric <= record.best + run.recipe.training.minimum_gain:
        record.waited += 1
        return
    record.best, record.best_iteration, record.waited = metric, record.iteration, 0
    record.best_weights = _weights(run.method) if run.worker.rank == 0 else {}


def _keep_best_on_test(run: TrainingRun, metric: float) -> None:
    record = run.record
    if record.best_on_test is None or metric > record.best_on_test:
        record.best_on_test = metric
        record.best_on_test_weights = _weights(run.method) if run.worker.rank == 0 else {}


def _weights(method: Method) -> dict[str, Tensor]:
    """Copies on the CPU of what a model consists of, without the modules that only training needs."""
    return {name: value.detach().to("cpu", copy=True) for name, value in saved_state(method).items()}


def _end(run: TrainingRun) -> None:
    """Writes the outputs, then removes the state."""
    if run.worker.rank == 0:
        write_outputs(run)
        run.live.end(run.record.rows)
    if run.worker.world > 1:
        dist.barrier()  # no worker leaves before the outputs are there
    if run.worker.rank == 0 and run.state is not None:
        remove_states(run.state)


def _progress(run: TrainingRun) -> Progress:
    size = run.recipe.batch.size
    label = f"{'refit' if run.record.is_refit else 'train'} {run.job.name}"
    progress = Progress(label if run.worker.rank == 0 else None, run.length * size, "images")
    progress.resume_at(run.record.iteration * size)
    return progress


def _note(step: Step, run: TrainingRun) -> str:
    terms = ", ".join(f"{name} {value:.4g}" for name, value in step.terms.items())
    loss = f"loss {step.loss:.4g}" + (f" ({terms})" if len(step.terms) > 1 else "")
    rows = run.record.rows
    validated = rows and "recall_at_1" in rows[-1]
    recall = f"  validation R@1 {rows[-1]['recall_at_1']:.1%}" if validated else ""
    return f"step {run.record.total}  {loss}{recall}"


def _named(run: TrainingRun, rows: list[int]) -> str:
    """The first 8 of `rows` with their source."""
    names = ", ".join(f"row {row} ({run.shards.source(row)})" for row in rows[:8])
    return names + (f" and {len(rows) - 8} more" if len(rows) > 8 else "")
