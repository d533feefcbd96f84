"""Saving a run and resuming it: the checkpoints of checkpoint.py with the content of a TrainingRun."""

import sys
from typing import Any

import torch
import torch.distributed as dist

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


def resume(run: TrainingRun) -> None:
    """Loads the newest whole checkpoint into `run`, on every worker the one that rank 0 reads. Without one, does nothing."""
    saved = _newest(run)
    if saved is None:
        return
    run.method.load_state_dict(saved["method"])
    run.learner.optimizer.load_state_dict(saved["optimizer"])
    run.record = Record(**saved["record"])
    run.record.resumed_at.append(run.record.iteration)
    for phase, seconds in run.record.seconds.items():
        run.clock.seconds[phase] = run.clock.seconds.get(phase, 0.0) + seconds
    if run.worker.rank == 0:
        sys.stderr.write(f"resuming at step {run.record.iteration} from {run.state}\n")


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
