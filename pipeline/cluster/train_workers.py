"""The workers of one training under Ray Train: one CPU slot or one GPU each.

A worker that died (killed, out of memory, a lost machine) makes the run start again from the checkpoint of
the loop, for as long as there is a new checkpoint at least every third time. An error of the loop ends the
run.
"""

import contextlib
import dataclasses
import itertools
import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.train import (
    ControllerError,
    FailureConfig,
    PreemptionError,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    WorkerGroupError,
)
from ray.train.torch import TorchConfig, TorchTrainer

from unseen.cluster.connection import Cluster, alive_nodes, lost_nodes
from unseen.cluster.console import Console, copied
from unseen.cluster.notice import noticing
from unseen.cluster.shared import require_shared, shared_nodes
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.errors import UserError
from unseen.runtime.leftovers import owned
from unseen.runtime.memory import memory_problem
from unseen.runtime.names import say
from unseen.runtime.progress import terminal_columns
from unseen.training.job import Job, Loop
from unseen.training.staging import staged
from unseen.training.worker import stays

RESIZE_SECONDS = 60.0  # between two comparisons of the number of workers with the resources
_RETRIES = 2  # of a run whose worker died and that wrote no checkpoint since its start
_TIMEOUT = "WorkerGroupStartupTimeoutError"  # the resources did not become free
_START_ERRORS = (_TIMEOUT, "WorkerGroupStartupFailedError")  # of Ray's controller; they may pass
_RESUMES = "The same command resumes from the last checkpoint."


def fit(
    job: Job, worlds: Sequence[int], gpu: str, cluster: Cluster, loop: Loop | None = None
) -> dict[str, Any]:
    """Trains `job` under Ray Train: {result: of the loop; began, ended: seconds since 1970}.

    `worlds` are the possible numbers of workers, ascending. With several, the number follows the resources of
    a cluster that is not private; a private one does not change, and its largest possible number is taken.
    `gpu` is train.gpu. Each new start waits until the cluster has the resources of the smallest number free,
    after a death also for those of a lost node. If another stage takes the resources before the workers
    start, Ray Train gives up after RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S, and the wait goes on.
    """
    elastic = len(worlds) > 1 and not cluster.private
    if len(worlds) > 1 and cluster.private:
        worlds = [_most(worlds, cluster, gpu)]
    trainer = trainer_class(cluster.private, elastic)
    if elastic and trainer is TorchTrainer:
        worlds, elastic = [_most(worlds, cluster, gpu, job.threads)], False
    deaths, waited, written = 0, 0.0, checkpoints_of(job)
    nodes = alive_nodes()
    with _run_directory(job) as directory:
        console = directory / "console"
        shared = job.shards if job.shards.is_dir() else None
        config: dict[str, Any] = {
            "job": job,
            "shared": shared,
            "console": console,
            "columns": terminal_columns(sys.stderr),
            "loop": loop,
        }
        for number in itertools.count():
            began = time.monotonic()
            bundle = cluster.claim(worlds[0], job.threads, gpu, nodes if number else None, waited)
            nodes = alive_nodes()
            arguments = _arguments(worlds, bundle, cluster.private, directory / f"run-{number}")
            if not cluster.private and (selector := shared_nodes(bundle, worlds[-1], job.root, shared)):
                arguments["scaling_config"].label_selector = selector
            if elastic:
                arguments["worlds"] = worlds
            try:
                with copied(console), _handler_of_ctrl_c():
                    config["notice"] = directory / f"notice-{number}"
                    result = trainer(work, train_loop_config=config, **arguments).fit()
                    return dict(result.return_value)
            except Exception as error:
                died = isinstance(error, WorkerGroupError | PreemptionError)
                failure = type(_cause(error)).__name__  # Ray does not export the types
                if cluster.contended and failure == _TIMEOUT:
                    waited += time.monotonic() - began
                    continue  # another stage or job took the resources, or a node left
                lost = lost_nodes(nodes)
                if not died and trainer is not TorchTrainer and internals_differ(error, lost):
                    _warn(error)
                    trainer = TorchTrainer
                    worlds, elastic = [_most(worlds, cluster, gpu, job.threads)], False
                    continue
                if cluster.private and lost:
                    raise_failure(error, job.name, cluster, lost)
                earlier, written = written, checkpoints_of(job)
                deaths = 1 if written - earlier else deaths + 1  # only deaths without progress count
                if died or _is_death_of_helper(error):
                    waited = 0.0
                    raise_unless_dead(error, job.name, worlds[-1], deaths, lost)
                    _note_death(error, job.name, lost)
                    continue
                may_pass = isinstance(error, TrainingFailedError) if elastic else failure in _START_ERRORS
                if deaths > _RETRIES or not may_pass:
                    raise_failure(error, job.name, cluster, lost)
                # a node left while the workers started: they start again
    raise AssertionError("the loop above returns or raises")


def trainer_class(private: bool, elastic: bool = False) -> Any:
    """The trainer with few helper processes on a private cluster, that with a changing number of workers if
    `elastic`, otherwise Ray's TorchTrainer.

    Where the internals of Ray Train are not those that the former override: TorchTrainer, after a warning.
    """
    if not private and not elastic:
        return TorchTrainer
    try:
        from unseen.cluster.lean_trainer import ElasticTrainer, LeanTrainer
    except (ImportError, AttributeError) as error:
        _warn(error)
        return TorchTrainer
    return ElasticTrainer if elastic else LeanTrainer


def checkpoints_of(job: Job) -> set[Path]:
    """The checkpoints of all states of the run."""
    if job.state is None:
        return set()
    return set((job.state / job.dataset / job.method).glob(f"{job.seed}-*/*.pt"))


def _most(worlds: Sequence[int], cluster: Cluster, gpu: str, cpus: int = 1) -> int:
    """The largest number of workers, each of `cpus` CPUs or a GPU, for which the cluster has resources; at
    least the first."""
    room = cluster.gpus if gpu == "yes" or (gpu == "auto" and cluster.gpus) else cluster.cpus // cpus
    return max((world for world in worlds if world <= room), default=worlds[0])


def internals_differ(error: Exception, lost: str = "") -> bool:
    """Whether a call of an internal failed: in this process, in the controller, or when its actor started.
    An actor that had started may also die with one of the nodes that left (`lost`)."""
    if _is_death_of_helper(error):
        return not lost
    cause = _cause(error)
    return isinstance(
        cause, AttributeError | ImportError | NotImplementedError | TypeError
    ) or _failed_to_start(cause)


def _is_death_of_helper(error: Exception) -> bool:
    """Whether an actor of Ray Train beside the workers died, for example with its node. One whose constructor
    raised an error did not: that error comes again."""
    cause = _cause(error)
    return isinstance(cause, RayActorError) and not _failed_to_start(cause)


def _failed_to_start(cause: Exception) -> bool:
    return isinstance(cause, RayActorError) and cause.actor_init_failed


def _cause(error: Exception) -> Exception:
    """The exception that ended Ray's controller; `error` itself if another ended the run."""
    return error.controller_failure if isinstance(error, ControllerError) else error


def _warn(error: Exception) -> None:
    say(
        f"warning: the fast start of workers fails with Ray {ray.__version__}: {_last_line(error)}\n"
        "  The workers start with Ray's TorchTrainer: it takes longer, and their number is fixed."
    )


def _arguments(
    worlds: Sequence[int], bundle: dict[str, float], private: bool, storage: Path
) -> dict[str, Any]:
    """The arguments of a trainer: workers with the resources of `bundle` each. `fit` retries, not Ray."""
    gpu, workers = "GPU" in bundle, worlds[0] if len(worlds) == 1 else (worlds[0], worlds[-1])
    return {
        "torch_config": TorchConfig(backend="nccl" if gpu else "gloo"),
        "scaling_config": ScalingConfig(
            num_workers=workers,
            use_gpu=gpu,
            resources_per_worker=bundle,
            elastic_resize_monitor_interval_s=RESIZE_SECONDS,
        ),
        "run_config": RunConfig(
            name=storage.name,
            storage_path=str(storage.parent),
            failure_config=FailureConfig(
                max_failures=0, controller_failure_limit=0, max_preemption_failures=0
            ),
            worker_runtime_env={} if private else {"env_vars": {"OMP_WAIT_POLICY": "passive"}},
        ),
    }


def work(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs."""
    began = time.time()
    import ray.train.torch
    import torch

    job: Job = config["job"]
    if config["shared"] is not None:
        require_shared(config["shared"])
    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    of_worker = loader_threads_of(context.get_local_world_size(), device.type)
    job = dataclasses.replace(job, loader_threads=job.loader_threads or of_worker)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    sys.stderr = Console(config["console"], config["columns"])
    logging.getLogger("ray.train").setLevel(logging.CRITICAL)  # the stage prints the error, once
    try:
        job = staged(job)
        with noticing(config["notice"], _preemption()) as preempted:
            loop = config["loop"]
            if loop is None:
                from unseen.training.loop import train

                loop = train
            place = context.get_world_rank(), context.get_world_size(), device
            result = loop(job, *place, _report, preempted)
    except Exception as error:
        problem = memory_problem(error)
        if problem is None:
            raise
        raise problem from error  # with a RuntimeError of one of several workers, the run would start again
    return {"result": result, "began": began, "ended": time.time()}


def _report(metrics: dict[str, Any]) -> None:
    """Tells Ray Train the iteration and the metrics of a validation. All workers report."""
    ray.train.report(metrics)


def _preemption() -> Callable[[], bool]:
    """Whether Ray has announced the loss of a node of the workers. False where Ray's internals differ."""
    try:
        from unseen.cluster.lean_trainer import preempted
    except (ImportError, AttributeError):
        return stays
    return preempted


def raise_unless_dead(error: Exception, name: str, workers: int, deaths: int, lost: str = "") -> None:
    """Returns if a worker, or a helper of Ray, died and at most `_RETRIES` times since the last new
    checkpoint; otherwise raises the error that ended the run. `lost`: nodes that left. A node that is
    preempted counts as a worker that died.

    That is the error of the loop, in rank order. With several workers a RuntimeError does not count as one:
    the others raise it when the worker that they exchange with has died.
    """
    of_ranks = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    failures = [of_ranks[rank] for rank in sorted(of_ranks)]
    errors = [failure for failure in failures if type(failure).__module__.partition(".")[0] != "ray"]
    if any(workers == 1 or not isinstance(each, RuntimeError) for each in errors):
        known = next((each for each in errors if isinstance(each, UserError)), None)
        if known is not None:
            raise known from None
        raise error
    if deaths > _RETRIES:
        remedy = "Most often the memory is full: lower batch.classes, input.size or train.workers."
        if isinstance(error, PreemptionError):
            remedy = "Its nodes were preempted: run it when the cluster has others."
        elif lost:
            remedy = f"{lost} left the cluster: see the logs of Ray there."
        what = (
            f"A worker of the training of {name} died {deaths} times without a new checkpoint: "
            f"{_last_line(error)}"
        )
        raise UserError(what, f"{remedy} {_RESUMES}") from error


def _note_death(error: Exception, name: str, lost: str) -> None:
    """One line about a death after which the run starts again."""
    cause = f"{lost} left the cluster" if lost else "a worker died"
    if isinstance(error, PreemptionError):
        cause = "a node was preempted"
    say(f"train {name}: {cause}; starting again from the last checkpoint.")


def raise_failure(error: Exception, name: str, cluster: Cluster, lost: str) -> None:
    """Raises `error`, which ended a run. As a UserError if nodes left (`lost`) or if Ray could not start the
    workers."""
    if lost and isinstance(error, TrainingFailedError | RayError):
        left = "The Ray cluster of this machine ended" if cluster.private else f"{lost} left {cluster.name}"
        what = f"{left} during the training of {name}: {_last_line(error)}"
        raise UserError(
            what, f"Most often a process was killed, or the memory is full. {_RESUMES}"
        ) from error
    if isinstance(error, TrainingFailedError):
        raise UserError(
            f"Ray could not start the workers of the training of {name}: {_last_line(error)}",
            f"Run it again when the machines are less busy, or lower train.workers. {_RESUMES}",
        ) from error
    raise error


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


@contextlib.contextmanager
def _handler_of_ctrl_c() -> Iterator[None]:
    """Restores the handler of SIGINT. That of Ray's TorchTrainer would remain and exit with status 0."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _run_directory(job: Job) -> Iterator[Path]:
    """Ray's files of a run and the console of the workers, on storage that all workers share."""
    parent = job.root / "data/state/ray"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{job.dataset}-{job.method}-{job.seed}-", dir=parent))
    try:
        with owned(directory):
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
