"""Members in processes of Ray, several at once: on this machine, or on the cluster of RAY_ADDRESS. The one file of this room that knows Ray.

A member is one task. Ray Train is not needed: a member trains on one worker, whatever `train.workers` says, so that the machine is filled with
members. A task whose process died is run again, and goes on from the checkpoint that it finds.
"""

import contextlib
import io
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.cluster.connection import connection
from pipeline.cluster.console import Console, copied
from pipeline.cluster.training import imported, usable_gpu
from pipeline.config.stages import TrainSettings
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress, terminal_columns
from pipeline.studies.ensemble.members import Member

_RETRIES = 2  # of a member whose process died
_LOOK = 1.0  # seconds between looks at how far the members are
_LOG = 30.0  # seconds between lines of progress in a log


def train_side_by_side(members: Sequence[Member], concurrent: int, several: bool, machine: TrainSettings, console: Path) -> None:
    """Finishes those of `members` that are not, at most `concurrent` at a time.

    `several`: as many processes must be free before anything starts; else one, and the scheduler of the cluster starts more where they fit.
    `console` is a file that all processes can append to. The first member that fails ends the others, which go on from their checkpoints in the
    next run. Raises UserError for a cluster without the resources, for a process that keeps dying, and whatever a member raises as one.
    """
    todo = deque(member for member in members if not member.finished)
    concurrent = min(concurrent, len(todo))
    with imported("torch"), connection(concurrent, machine.gpu != "no") as cluster:
        import ray

        gpu = usable_gpu(machine.gpu, cluster)
        bundle = cluster.claim(concurrent if several else 1, todo[0].job.threads, gpu)
        environment = {} if cluster.private else {"runtime_env": {"env_vars": {"OMP_WAIT_POLICY": "passive"}}}
        task = ray.remote(_work).options(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0), max_retries=_RETRIES, **environment)
        running: dict[Any, Member] = {}
        columns = terminal_columns(sys.stderr)
        with copied(console), _progress(members) as progress:
            while todo or running:
                while todo and len(running) < concurrent:
                    member = todo.popleft()
                    running[task.remote(member, "GPU" in bundle, console, columns)] = member
                for reference in ray.wait(list(running), timeout=_LOOK)[0]:
                    _outcome(reference, running.pop(reference))
                _show(progress, members, list(running.values()))


def _work(member: Member, gpu: bool, console: Path, columns: int | None) -> None:
    """What each process runs."""
    import torch

    from pipeline.studies.ensemble.work import work

    with Console(console, columns) as out:
        said = _Said(out, member.title, (f"train {member.job.name}", f"export {member.job.name}"))

        def report(row: dict[str, Any]) -> None:
            metric = member.job.resolved().training.selection_metric
            numbers = f"loss {row['loss']:.4g}  {metric} {row[metric]:.4f} (best {row['best']:.4f}) on its fold"
            said.write(f"step {row['iteration']}/{member.iterations}  {numbers}\n")

        with contextlib.redirect_stderr(said):
            work(member, torch.device("cuda", 0) if gpu else torch.device("cpu"), report)
            said.write("done\n")


class _Said(io.TextIOBase):
    """Lines under the name of a member, but for those of its progress: the stage shows that of all members together."""

    def __init__(self, out: Console, name: str, progress: tuple[str, ...]) -> None:
        self.out, self.name, self.progress = out, name, progress

    def write(self, text: str) -> int:
        clear = "\r\x1b[2K" if self.out.isatty() else ""
        for line in text.splitlines():
            if not line.startswith(self.progress):
                self.out.write(f"{clear}{self.name}: {line}\n")
        return len(text)


def _outcome(reference: Any, member: Member) -> None:
    """Raises what ended the task of `member`, if anything did."""
    import ray

    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(f"{member.title[0].upper()}{member.title[1:]}: {error.cause.what}", error.cause.remedy) from None
        raise
    except ray.exceptions.RayError as error:
        raise UserError(
            f"The process of {member.title} died {_RETRIES + 1} times: {str(error).strip().splitlines()[0]}",
            "Most often the memory is full: lower ensemble.concurrent, or batch.classes or input.size of the recipe. "
            "The same command resumes from the last checkpoints.",
        ) from error


def _progress(members: Sequence[Member]) -> Progress:
    first = members[0].job
    progress = Progress(f"ensemble {first.dataset}/{first.method}", sum(member.iterations for member in members), "steps", interval=_LOG)
    progress.resume_at(sum(member.iteration() for member in members))
    return progress


def _show(progress: Progress, members: Sequence[Member], running: Sequence[Member]) -> None:
    at = {member.title: member.iteration() for member in members}
    where = "; ".join(f"{member.title} at step {at[member.title]}" for member in running)
    done = sum(member.finished for member in members)
    progress.advance(sum(at.values()) - progress.done, f"{done} of {len(members)} members done" + (f"; {where}" if where else ""))
