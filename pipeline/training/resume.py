"""What the state directory of a run contains: the initial weights, and checkpoints (checkpoint.py).

The initial weights are an output of the run. They are written once, before the first step, and their sha256 is in each
checkpoint, so that a resumed run writes the same.
"""

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from pipeline.methods.artifact import save_weights
from pipeline.runtime.digest import sha256_of
from pipeline.runtime.errors import UserError
from pipeline.training import checkpoint
from pipeline.training.record import Record
from pipeline.training.run import TrainingRun
from pipeline.training.state import digest, other_states


def save(run: TrainingRun) -> None:
    """Writes a checkpoint on rank 0; every worker waits for it. Does nothing for a job that keeps no state."""
    if run.state is None:
        return
    with run.clock.phase("checkpoint"):
        run.record.seconds = dict(run.clock.seconds)
        if run.worker.rank == 0:
            content = {
                "method": run.method.state_dict(),
                "optimizer": run.learner.optimizer.state_dict(),
                "record": vars(run.record),
            }
            checkpoint.save(run.state, run.record.iteration, digest(run.identity), content)
        if run.worker.world > 1:
            dist.barrier()  # no worker is ahead of the state that it may resume from


def untrained_weights(run: TrainingRun) -> Path:
    """The file of the initial weights."""
    assert run.state is not None
    return run.state / "untrained.safetensors"


def start_or_resume(run: TrainingRun) -> None:
    """Loads the newest whole checkpoint into `run`, on every worker the one that rank 0 reads.

    Without one, rank 0 stores the initial weights if the job has outputs. Raises UserError if no checkpoint is whole,
    or the initial weights are missing or damaged.
    """
    saved = _newest(run)
    if saved is not None:
        _resume(run, saved)
    elif run.worker.rank == 0 and run.job.outputs is not None:
        save_weights(untrained_weights(run), run.method)
        run.record.untrained = sha256_of(untrained_weights(run))


def _resume(run: TrainingRun, saved: dict[str, Any]) -> None:
    run.method.load_state_dict(saved["method"])
    run.learner.optimizer.load_state_dict(saved["optimizer"])
    run.record = Record(**saved["record"])
    run.record.resumed_at.append(run.record.iteration)
    for phase, seconds in run.record.seconds.items():
        run.clock.seconds[phase] = run.clock.seconds.get(phase, 0.0) + seconds
    if run.worker.rank == 0:
        if run.job.outputs is not None:
            _check_untrained(run)
        sys.stderr.write(f"resuming at step {run.record.iteration} from {run.state}\n")


def _check_untrained(run: TrainingRun) -> None:
    path = untrained_weights(run)
    digest_found = sha256_of(path) if path.is_file() else None
    if digest_found != run.record.untrained:
        problem = "is missing" if digest_found is None else "is damaged: it has another sha256 than the checkpoints name"
        raise UserError(f"{path} {problem}.", f"Remove {run.state} and run again: training starts over.")


def _newest(run: TrainingRun) -> dict[str, Any] | None:
    """The state in the newest checkpoint of this run, the same one on every worker."""
    if run.state is None:
        return None
    name = digest(run.identity)
    newest = checkpoint.newest(run.state, name) if run.worker.rank == 0 else None
    iteration = torch.tensor([-1 if newest is None else newest[0]], device=run.worker.device)
    if run.worker.world > 1:
        dist.broadcast(iteration, src=0)
    if newest is not None:
        return newest[1]
    if int(iteration) >= 0:
        return checkpoint.at(run.state, int(iteration), name)
    if run.worker.rank == 0 and (others := other_states(run.state)):
        message = "recipe, data or code changed since a run that did not end; starting from the first step."
        sys.stderr.write(f"{others[0].parent}: {message}\n")
    return None
