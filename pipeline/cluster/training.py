"""The loop on `train.workers` processes under Ray Train: one CPU slot or one GPU each, on this machine or on the cluster of RAY_ADDRESS.

The loop itself knows nothing of this. Checkpoints are its own, outside Ray's storage: a worker that died is started again and finds them, and so
does the next `dvc repro`. Nothing of Ray is imported before the batch is known to divide among the workers.
"""

import contextlib
import importlib
import json
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.cluster.connection import Cluster, connection
from pipeline.cluster.console import Console, copied
from pipeline.config.stages import TrainSettings
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import write_json
from pipeline.runtime.progress import terminal_columns
from pipeline.training.job import Job, check_world

Loop = Callable[..., dict[str, Any]]  # as pipeline.training.loop.train, which None stands for: importing it here would cost the driver seconds
_RETRIES = 2  # of a run whose worker died


def run_training(job: Job, settings: TrainSettings, loop: Loop | None = None) -> dict[str, Any]:
    """Trains `job` on `settings.workers` workers of `job.threads` CPUs each, and returns what the loop returns on rank 0.

    Adds to the job's log how long Ray took: `ray_seconds` (connect, start of the workers, return, shutdown) beside `train_seconds` (the loop and
    its imports). Raises UserError for a batch that the workers cannot share, a cluster without the resources, and whatever the loop raises as one.
    """
    check_world(job.resolved(), settings.workers)
    sys.stderr.write(f"train {job.name}: starting Ray and {settings.workers} worker{'s' * (settings.workers > 1)} ...\n")
    sys.stderr.flush()
    begin = time.time()
    with imported("torch", "pandas"), connection(settings.workers, settings.gpu != "no") as cluster:
        bundle = cluster.claim(settings.workers, job.threads, usable_gpu(settings.gpu, cluster))
        connected = time.time()
        found = fit(job, settings.workers, bundle, cluster, loop)
        returned = time.time()
    end = time.time()
    if job.outputs is not None:
        ray_seconds = {
            "connect": connected - begin,
            "start": found["began"] - connected,
            "return": returned - found["ended"],
            "shutdown": end - returned,
        }
        log = json.loads(job.outputs.log.read_text(encoding="utf-8"))
        log["ray_seconds"] = {name: round(value, 3) for name, value in ray_seconds.items()}
        log["train_seconds"] = round(found["ended"] - found["began"], 3)
        write_json(job.outputs.log, log)
    return dict(found["result"])


def fit(
    job: Job,
    workers: int,
    bundle: dict[str, float],
    cluster: Cluster,
    loop: Loop | None = None,
) -> dict[str, Any]:
    """One Ray Train run of `job`: {result: of the loop, began, ended: seconds since the epoch}."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.torch import TorchConfig

    from pipeline.cluster.trainer import Trainer, loop_errors

    with _run_directory(job) as directory:
        console = directory / "console"
        trainer = Trainer(
            work,
            train_loop_config={"job": job, "console": console, "columns": terminal_columns(sys.stderr), "loop": loop},
            torch_config=TorchConfig(backend="nccl" if "GPU" in bundle else "gloo"),
            scaling_config=ScalingConfig(num_workers=workers, use_gpu="GPU" in bundle, resources_per_worker=bundle),
            run_config=RunConfig(
                name="ray",
                storage_path=str(directory),
                failure_config=FailureConfig(max_failures=_RETRIES, controller_failure_limit=_RETRIES),
                worker_runtime_env={} if cluster.private else {"env_vars": {"OMP_WAIT_POLICY": "passive"}},
            ),
            private=cluster.private,
        )
        try:
            with copied(console):
                result = trainer.fit()
        except TrainingFailedError as error:
            raised = loop_errors(error)
            known = next((one for one in raised if isinstance(one, UserError)), None)
            if known is not None:
                raise known from None
            if raised:
                raise
            raise UserError(
                f"A worker of the training of {job.name} died {_RETRIES + 1} times: {str(error).strip().splitlines()[-1]}",
                "Most often the memory is full: lower batch.classes or input.size of the recipe, or train.workers. "
                "The same command resumes from the last checkpoint.",
            ) from error
    return dict(result.return_value)


def work(config: dict[str, Any]) -> dict[str, Any]:
    """What each worker runs."""
    began = time.time()
    import ray.train.torch
    import torch

    train = config["loop"]
    if train is None:
        from pipeline.training.loop import train

    job: Job = config["job"]
    context = ray.train.get_context()
    device = ray.train.torch.get_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    sys.stderr = Console(config["console"], config["columns"])
    logging.getLogger("ray.train").setLevel(logging.CRITICAL)  # an error travels to the stage, which prints it once
    result = train(job, context.get_world_rank(), context.get_world_size(), device)
    return {"result": result, "began": began, "ended": time.time()}


def usable_gpu(wanted: str, cluster: Cluster) -> str:
    """`wanted` (train.gpu), unless the installed torch cannot use the GPUs of this machine."""
    import torch

    if not cluster.private or cluster.gpus == 0 or torch.cuda.is_available():
        return wanted
    if wanted == "yes":
        raise UserError(
            f"train.gpu is yes and this machine has {cluster.gpus} GPU, but the installed torch {torch.__version__} cannot use it.",
            "Install a CUDA build of torch and a driver that it supports, or set train.gpu: no.",
        )
    return "no"


@contextlib.contextmanager
def imported(*modules: str) -> Iterator[None]:
    """Imports modules in the background while the block starts a cluster, which mostly waits. Where one is missing, its first user says so."""
    thread = threading.Thread(target=lambda: [importlib.import_module(name) for name in modules], name="imports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextlib.contextmanager
def _run_directory(job: Job) -> Iterator[Path]:
    """Where Ray keeps its own notes on a run, and the workers' console: on the storage that all workers share, gone with the run."""
    parent = job.root / "data/state/ray"
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{job.dataset}-{job.method}-{job.seed}-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
