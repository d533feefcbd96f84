"""Members of an ensemble in several processes at once. Each continues from the newest checkpoint it finds."""

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


def train_side_by_side(
    members: Sequence[Member], concurrent: int, several: bool, machine: TrainSettings, console: Path
) -> None:
    """Finishes those of `members` that are not, at most `concurrent` at a time.

    `several`: as many processes must be free before the first member starts (see `Processes.together`).
    `console` is a file that all processes can append to. The first member that fails ends the others; the
    next run resumes them. Raises UserError for a cluster without the resources, for a process that keeps
    dying, and for a UserError of a member.
    """
    unfinished = [member for member in members if not member.finished]
    threads = unfinished[0].job.threads
    processes = Processes(min(concurrent, len(unfinished)), several, threads, machine.gpu)
    tasks = [Task(member.title, member, _progress_lines(member)) for member in unfinished]
    with task_processes(processes, console, _OUT_OF_MEMORY) as run, _progress(members) as progress:
        for running in run(_work, tasks):
            _show(progress, members, [task.item for task in running])


def _progress_lines(member: Member) -> tuple[str, ...]:
    """How the progress lines of a member start: the stage shows the progress of all members in one line."""
    return (f"train {member.job.name}", f"export {member.job.name}")


def _work(member: Member, device: "torch.device") -> None:
    """What each process runs."""
    from pipeline.studies.ensemble.work import work

    def report(row: dict[str, Any]) -> None:
        metric = member.job.resolved().training.selection_metric
        numbers = f"loss {row['loss']:.4g}  {metric} {row[metric]:.4f} (best {row['best']:.4f}) on its fold"
        sys.stderr.write(f"step {row['iteration']}/{member.iterations}  {numbers}\n")

    work(member, device, report)


def _progress(members: Sequence[Member]) -> Progress:
    first = members[0].job
    steps = sum(member.iterations for member in members)
    progress = Progress(f"ensemble {first.dataset}/{first.method}", steps, "steps", interval=_LOG)
    progress.resume_at(sum(member.iteration() for member in members))
    return progress


def _show(progress: Progress, members: Sequence[Member], running: Sequence[Member]) -> None:
    steps = {member.title: member.iteration() for member in members}
    places = "; ".join(f"{member.title} at step {steps[member.title]}" for member in running)
    done = sum(member.finished for member in members)
    note = f"{done} of {len(members)} members done" + (f"; {places}" if places else "")
    progress.advance(sum(steps.values()) - progress.done, note)
