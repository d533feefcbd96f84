"""The workers of one training under Ray Train: one CPU slot or one GPU each.

A worker that died (killed, out of memory, a lost machine) makes the run start again from the checkpoint of
the loop. An error of the loop ends the run.
"""

import contextlib
import itertools
import logging
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.train import (
    ControllerError,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    TrainingFailedError,
    WorkerGroupError,
)
from ray.train.torch import TorchConfig, TorchTrainer

from pipeline.cluster.connection import Cluster
from pipeline.cluster.console import Console, copied
from pipeline.cluster.shared import require_shared
from pipeline.runtime.errors import UserError
from pipeline.runtime.leftovers import owned
from pipeline.runtime.progress import terminal_columns
from pipeline.training.job import Job, Loop

_RETRIES = 2  # of a run whose worker died
_RESUMES = "The same command resumes from the last checkpoint."


def fit(job: Job, workers: int, gpu: str, cluster: Cluster, loop: Loop | None = None) -> dict[str, Any]:
    """Trains `job` under Ray Train: {result: of the loop; began, ended: seconds since 1970}.

    `gpu` is train.gpu. Each new start waits until the cluster has the resources free.
    """
    trainer = trainer_class(cluster.private)
    deaths = 0
    with _run_directory(job) as directory:
        console = directory / "console"
        shared = job.shards if job.shards.is_dir() else None
        config = {
            "job": job,
            "shared": shared,
            "console": console,
            "columns": terminal_columns(sys.stderr),
            "loop": loop,
        }
        for number in itertools.count():
            bundle = cluster.claim(workers, job.threads, gpu)
            arguments = _arguments(workers, bundle, cluster.private, directory / f"run-{number}")
            try:
                with copied(console), _handler_of_ctrl_c():
                    result = trainer(work, train_loop_config=config, **arguments).fit()
                    return dict(result.return_value)
            except WorkerGroupError as error:
                deaths += 1
                raise_unless_dead(error, job.name, workers, deaths)
            except Exception as error:
                if trainer is TorchTrainer or not internals_differ(error):
                    raise_failure(error, job.name)
                _warn(error)
                trainer = TorchTrainer
    raise AssertionError("the loop above returns or raises")


def trainer_class(private: bool) -> Any:
    """The trainer with few helper processes on a private cluster, otherwise Ray's TorchTrainer.

    Where the internals of Ray Train are not those that the former overrides: TorchTrainer, after a warning.
    """
    if not private:
        return TorchTrainer
    try:
        from pipeline.cluster.lean_trainer import LeanTrainer
    except (ImportError, AttributeError) as error:
        _warn(error)
        return TorchTrainer
    return LeanTrainer


def internals_differ(error: Exception) -> bool:
    """Whether a call of an internal failed: in this process, in the controller, or when its actor started."""
    cause = error.controller_failure if isinstance(error, ControllerError) else error
    return isinstance(cause, AttributeError | ImportError | NotImplementedError | TypeError | RayActorError)


def _warn(error: Exception) -> None:
    sys.stderr.write(
        f"warning: the fast start of workers fails with Ray {ray.__version__}: {_last_line(error)}\n"
        "  The workers start with Ray's TorchTrainer, which takes longer.\n"
    )
    sys.stderr.flush()


def _arguments(workers: int, bundle: dict[str, float], private: bool, storage: Path) -> dict[str, Any]:
    """The arguments of a trainer: workers with the resources of `bundle` each. `fit` retries, not Ray."""
    gpu = "GPU" in bundle
    return {
        "torch_config": TorchConfig(backend="nccl" if gpu else "gloo"),
        "scaling_config": ScalingConfig(num_workers=workers, use_gpu=gpu, resources_per_worker=bundle),
        "run_config": RunConfig(
            name=storage.name,
            storage_path=str(storage.parent),
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=_RETRIES),
            worker_runtime_env={} if private else {"env_vars": {"OMP_WAIT_POLICY": "passive"}},
        ),
    }


def work(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs."""
    began = time.time()
    import ray.train.torch
    import torch

    train = config["loop"]
    if train is None:
        from pipeline.training.loop import train

    job: Job = config["job"]
    if config["shared"] is not None:
        require_shared(config["shared"])
    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    sys.stderr = Console(config["console"], config["columns"])
    logging.getLogger("ray.train").setLevel(logging.CRITICAL)  # the stage prints the error, once
    result = train(job, context.get_world_rank(), context.get_world_size(), device)
    return {"result": result, "began": began, "ended": time.time()}


def raise_unless_dead(error: Any, name: str, workers: int, deaths: int) -> None:
    """Returns if a worker died and at most `_RETRIES` times; otherwise raises the error that ended the run.

    That is the error of the loop, in rank order. With several workers a RuntimeError does not count as one:
    the others raise it when the worker that they exchange with has died.
    """
    failures = [error.worker_failures[rank] for rank in sorted(error.worker_failures)]
    errors = [failure for failure in failures if type(failure).__module__.partition(".")[0] != "ray"]
    if any(workers == 1 or not isinstance(each, RuntimeError) for each in errors):
        known = next((each for each in errors if isinstance(each, UserError)), None)
        if known is not None:
            raise known from None
        raise error
    if deaths > _RETRIES:
        remedy = "Most often the memory is full: lower batch.classes, input.size or train.workers."
        what = f"A worker of the training of {name} died {deaths} times: {_last_line(error)}"
        raise UserError(what, f"{remedy} {_RESUMES}") from error


def raise_failure(error: Exception, name: str) -> None:
    """Raises `error`, which is not of a worker; as a UserError if Ray could not start the workers."""
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
