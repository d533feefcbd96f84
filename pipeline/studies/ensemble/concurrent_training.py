"""Trains members of an ensemble in concurrent processes. Each member resumes from its newest checkpoint."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.cluster.tasks import Processes, Task, task_processes
from pipeline.config.stages import TrainSettings
from pipeline.runtime.progress import Progress
from pipeline.studies.ensemble.members import Member

if TYPE_CHECKING:
    import torch

_LOG = 30.0  # seconds between lines of progress in a log
_OUT_OF_MEMORY = (
    "Most often the memory is full: lower ensemble.concurrent, or batch.classes or input.size of the recipe. "
    "The same command resumes from the last checkpoints."
)


def train_concurrently(
    members: Sequence[Member], concurrent: int, several: bool, machine: TrainSettings, console: Path
) -> None:
    """Trains the unfinished members, at most `concurrent` at a time.

    `several`: this many processes must be free before the first member starts (see `Processes.together`).
    `console` is a file to which all processes can append. The first member that fails ends the others; the
    next run resumes them. Raises UserError for a cluster without the resources, for a process that died
    repeatedly, and for a UserError of a member.
    """
    unfinished = [member for member in members if not member.finished]
    threads = unfinished[0].job.threads
    processes = Processes(min(concurrent, len(unfinished)), several, threads, machine.gpu)
    tasks = [Task(member.title, member, _progress_lines(member)) for member in unfinished]
    with task_processes(processes, console, _OUT_OF_MEMORY) as run, _progress(members) as progress:
        for running in run(_train_in_process, tasks):
            _show(progress, members, [task.item for task in running])


def _progress_lines(member: Member) -> tuple[str, ...]:
    """The first words of the progress lines of a member. They are hidden: the stage shows one line for all
    members."""
    return (f"train {member.job.name}", f"export {member.job.name}")


def _train_in_process(member: Member, device: "torch.device") -> None:
    """The function that each process runs."""
    from pipeline.studies.ensemble.member_training import train_member

    def report(row: dict[str, Any]) -> None:
        metric = member.job.resolved().training.selection_metric
        numbers = f"loss {row['loss']:.4g}  {metric} {row[metric]:.4f} (best {row['best']:.4f}) on its fold"
        sys.stderr.write(f"step {row['iteration']}/{member.iterations}  {numbers}\n")

    train_member(member, device, report)


def _progress(members: Sequence[Member]) -> Progress:
    first = members[0].job
    steps = sum(member.iterations for member in members)
    progress = Progress(f"ensemble {first.dataset}/{first.method}", steps, "steps", interval=_LOG)
    progress.resume_at(sum(member.iteration() for member in members))
    return progress


def _show(progress: Progress, members: Sequence[Member], running: Sequence[Member]) -> None:
    steps = {member.title: member.iteration() for member in members}
    positions = "; ".join(f"{member.title} at step {steps[member.title]}" for member in running)
    done = sum(member.finished for member in members)
    note = f"{done} of {len(members)} members done" + (f"; {positions}" if positions else "")
    progress.advance(sum(steps.values()) - progress.done, note)
