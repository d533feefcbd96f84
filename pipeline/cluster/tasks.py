"""Concurrent independent tasks in processes of Ray: on this machine, or on the cluster of RAY_ADDRESS.

A task that trains uses one worker, for any `train.workers`: concurrent tasks use the machine fully, and Ray
Train is not needed. A task whose process died runs again and can resume from its files.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pipeline.cluster.connection import connection, imported
from pipeline.cluster.console import Console, Titled, copied
from pipeline.cluster.devices import usable_gpu
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import terminal_columns

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")
Work = Callable[[Item, "torch.device"], None]
_RETRIES = 2  # of a task whose process died
_INTERVAL = 1.0  # seconds between looks at the running tasks


@dataclass(frozen=True)
class Task(Generic[Item]):
    """What one process works on; `item` is pickled.

    The lines of its standard error are shown after `title`. Those that start with one of `hidden` are left
    out: the caller shows one progress line for all tasks.
    """

    title: str
    item: Item
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True)
class Processes:
    """How many tasks run at once, and what each takes.

    `together`: all `count` processes must be free before the first task starts. Otherwise one must be free,
    and Ray's scheduler starts the others where they fit. `gpu` is train.gpu.
    """

    count: int
    together: bool
    threads: int
    gpu: str


Run = Callable[[Work[Item], Sequence[Task[Item]]], Iterator[list[Task[Item]]]]


@contextlib.contextmanager
def task_processes(processes: Processes, console: Path, out_of_memory: str) -> Iterator[Run[Any]]:
    """Connects to the cluster and yields run(work, tasks), which yields the running tasks once a second.

    `work(item, device)` runs one task. `console` is a file to which all processes can append. The first task
    that fails ends the others. `out_of_memory` is the remedy for a process that died repeatedly, most often
    for lack of memory. Raises UserError for a cluster without the resources, for a process that died
    repeatedly, and for a UserError of a task, with its title.
    """
    with imported("torch"), connection(processes.count, processes.gpu != "no") as cluster:
        import ray

        reserved = processes.count if processes.together else 1
        bundle = cluster.claim(reserved, processes.threads, usable_gpu(processes.gpu, cluster))
        environment = {} if cluster.private else {"runtime_env": {"env_vars": {"OMP_WAIT_POLICY": "passive"}}}
        options = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0), "max_retries": _RETRIES}
        remote = ray.remote(_process).options(**options, **environment)
        columns = terminal_columns(sys.stderr)

        def run(work: Work[Item], tasks: Sequence[Task[Item]]) -> Iterator[list[Task[Item]]]:
            waiting = deque(tasks)
            running: dict[Any, Task[Item]] = {}
            while waiting or running:
                while waiting and len(running) < processes.count:
                    task = waiting.popleft()
                    running[remote.remote(work, task, "GPU" in bundle, console, columns)] = task
                for reference in ray.wait(list(running), timeout=_INTERVAL)[0]:
                    raise_failure(reference, running.pop(reference).title, out_of_memory)
                yield list(running.values())

        with copied(console):
            yield run


def _process(work: Work[Item], task: Task[Item], gpu: bool, console: Path, columns: int | None) -> None:
    """The body of each process."""
    import torch

    device = torch.device("cuda", 0) if gpu else torch.device("cpu")
    with Console(console, columns) as out, contextlib.redirect_stderr(Titled(out, task.title, task.hidden)):
        work(task.item, device)
        sys.stderr.write("done\n")


def raise_failure(reference: Any, title: str, out_of_memory: str) -> None:
    """Raises the error that ended the task behind `reference`, if there is one."""
    import ray

    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            what = f"{title[0].upper()}{title[1:]}: {error.cause.what}"
            raise UserError(what, error.cause.remedy) from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[0]
        what = f"The process of {title} died {_RETRIES + 1} times: {reason}"
        raise UserError(what, out_of_memory) from error
