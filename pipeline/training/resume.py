"""The state directory of a run: its identity, the initial weights, and checkpoints (checkpoint.py).

The identity serves the message about a run that cannot be resumed. The initial weights are an output of the
run. They are written once, before the first step of a phase, and their sha256 is in each checkpoint, so that
a resumed run writes the same. Checkpoints are numbered by the steps of both phases of protocol refit.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from unseen.methods.artifact import save_weights
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.names import say
from unseen.training.checkpoint import Parts, State
from unseen.training.record import TrainingRecord
from unseen.training.run import TrainingRun, second_phase
from unseen.training.state import differences, other_states

LARGE = 1 << 20  # bytes of a buffer that is stored as a part of a checkpoint
_IDENTITY = "identity.json"
_WEIGHTS = ("best_weights", "best_on_test_weights")  # of the record


def save(run: TrainingRun) -> None:
    """Starts to write a checkpoint on rank 0, from copies of all values, in the background (background.py).

    Waits for the checkpoint before it. Writes nothing for a job that keeps no state.
    """
    checkpoints, writer, pace = run.checkpoints, run.background, run.pace
    with run.clock.phase("checkpoint"):
        run.record.seconds = dict(run.clock.seconds)
        if checkpoints is None or run.worker.rank != 0:
            return
        writer.wait()
        began, iteration = time.monotonic(), run.record.total
        state, parts = _copies(run)
        blocked = time.monotonic() - began

        def write() -> None:
            working = time.thread_time()
            checkpoints.save(iteration, state, parts)
            pace.ended(blocked + time.thread_time() - working, time.monotonic() - began)

        writer.start(write)


def save_is_due(run: TrainingRun) -> bool:
    """Whether to `save`: not if checkpoints would cost too much of the time (pace.py), or the one before is
    still being written. Rank 0 alone writes and decides; the others wait for nothing.

    A run that resumes from an older checkpoint repeats the steps since then, to the same result.
    """
    if run.checkpoints is None or run.worker.rank != 0 or not run.pace.due():
        return False
    with run.clock.phase("checkpoint"):
        return run.background.wait(run.pace.patience())


def _copies(run: TrainingRun) -> tuple[State, Parts]:
    """Copies on the CPU of everything that later steps change. Weights of a validation are never changed.

    Large buffers of the method, such as a memory of embeddings, are parts: most of their rows are those of
    the last checkpoint.
    """
    method = run.method.state_dict()
    names = [name for name, buffer in run.method.named_buffers() if buffer.nbytes >= LARGE]
    memories = {name: method.pop(name) for name in names if name in method}
    record = dict(vars(run.record))
    parts = {name: record.pop(name) for name in _WEIGHTS}
    state = {"method": method, "optimizer": run.learner.optimizer.state_dict(), "record": record}
    return _copy(state), {**parts, "memories": _copy(memories)}


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copy(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_copy, value))
    return value


def untrained_weights(run: TrainingRun) -> Path:
    """The file of the initial weights of the present phase."""
    assert run.state is not None
    return run.state / ("untrained-refit.safetensors" if run.record.is_refit else "untrained.safetensors")


def start_or_resume(run: TrainingRun) -> TrainingRun:
    """The run in the state of the newest whole checkpoint, on every worker of the one that rank 0 reads.

    Without one, rank 0 stores the run's identity, and the initial weights if the job has outputs. Raises
    UserError if no checkpoint is whole, or the initial weights are missing or damaged.
    """
    saved = _newest(run)
    if saved is not None:
        return _resume(run, saved)
    if run.worker.rank == 0 and run.state is not None:
        _explain_start(run.state, run.identity)
        write_json(run.state / _IDENTITY, run.identity)
        _keep_initial_weights(run)
    return run


def start_refit(run: TrainingRun) -> TrainingRun:
    """The second phase of protocol refit at its start, after a finished first phase; saves it."""
    first = run.record
    record = TrainingRecord(
        is_refit=True,
        steps_before=first.iteration,
        rows=first.rows,
        best=first.best,
        best_iteration=first.best_iteration,
        resumed_at=first.resumed_at,
    )
    run = second_phase(run, record)
    if run.worker.rank == 0 and run.state is not None:
        _keep_initial_weights(run)
    save(run)
    return run


def _keep_initial_weights(run: TrainingRun) -> None:
    if run.job.outputs is not None:
        save_weights(untrained_weights(run), run.method)
        run.record.untrained = sha256_of(untrained_weights(run))


def _explain_start(state: Path, identity: dict[str, Any]) -> None:
    """If states of other identities have checkpoints, names on stderr in what the newest of them differs."""
    others = [other for other in other_states(state) if any(other.glob("*.pt"))]
    if not others:
        return
    newest = max(others, key=lambda path: path.stat().st_mtime_ns)
    file = newest / _IDENTITY
    changed = (
        differences(json.loads(file.read_text("utf-8")), identity) if file.is_file() else ["unknown inputs"]
    )
    difference = f"differs in {', '.join(changed)}: starting from the first step"
    say(f"{newest} is of a run that did not end and that {difference}.")


def _resume(run: TrainingRun, saved: State) -> TrainingRun:
    record = TrainingRecord(**saved["record"], **{name: saved[name] for name in _WEIGHTS})
    if record.is_refit:
        run = second_phase(run, record)
    run.record = record
    run.method.load_state_dict(saved["method"] | saved["memories"])
    run.learner.optimizer.load_state_dict(saved["optimizer"])
    record.resumed_at.append(record.total)
    for phase, seconds in run.record.seconds.items():
        run.clock.seconds[phase] = run.clock.seconds.get(phase, 0.0) + seconds
    if run.worker.rank == 0:
        if run.job.outputs is not None:
            _check_untrained(run)
        workers = f"{run.worker.world} worker{'s' * (run.worker.world > 1)}"
        say(f"resuming at step {record.total} from {run.state} with {workers}")
    return run


def _check_untrained(run: TrainingRun) -> None:
    path = untrained_weights(run)
    remedy = f"Remove {run.state} and run again: training starts over."
    if not path.is_file():
        raise UserError(f"{path} is missing.", remedy)
    if (value := sha256_of(path)) != run.record.untrained:
        raise UserError(
            f"{path} is damaged: its sha256 is {value}, the checkpoint names {run.record.untrained}.", remedy
        )


def _newest(run: TrainingRun) -> State | None:
    """The state in the newest checkpoint of this run, the same one on every worker."""
    if run.checkpoints is None:
        return None
    newest = run.checkpoints.newest() if run.worker.rank == 0 else None
    iteration = torch.tensor([-1 if newest is None else newest[0]], device=run.worker.device)
    if run.worker.world > 1:
        dist.broadcast(iteration, src=0)
    if newest is not None:
        return newest[1]
    return run.checkpoints.at(int(iteration)) if int(iteration) >= 0 else None
