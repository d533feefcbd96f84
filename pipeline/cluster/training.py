"""A training on `train.workers` processes.

One worker without RAY_ADDRESS is this process, without Ray. Otherwise Ray Train starts the workers, on this
machine or on the cluster of RAY_ADDRESS (pipeline/cluster/train_workers.py). So it does for one worker where
parallel stages share the GPUs of this machine (pipeline/cluster/run_cluster.py). The loop is plain torch and
the same in all cases. It writes its own checkpoints, outside Ray's storage; the next `dvc repro` resumes from
them.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from unseen.cluster.connection import cluster_address, connection, imported, run_cluster_address
from unseen.cluster.devices import device_here, gpus_here, usable_gpu
from unseen.config.stages import TrainSettings
from unseen.runtime.files import require_writable, write_json
from unseen.runtime.names import say
from unseen.runtime.trackers import require_packages
from unseen.training.job import Job, Loop, possible_worlds
from unseen.training.staging import staged


def run_training(job: Job, settings: TrainSettings, loop: Loop | None = None) -> dict[str, Any]:
    """Trains `job` on `settings.workers` workers (as many of a range as the cluster has; for auto, as many as
    it has GPUs) of `job.threads` CPUs; returns the loop's value on rank 0.

    Adds to the job's log `train_seconds` (the loop and its imports) and, if Ray starts the workers,
    `ray_seconds` (connect, start of the workers, return, shutdown). Raises UserError for a batch that the
    workers cannot share, for outputs that cannot be written, for a machine or cluster without the resources,
    and for every UserError of the loop.
    """
    worlds = possible_worlds(job.recipe, settings)
    _require_writable(job)
    require_packages(job.trackers)
    if settings.workers == "auto" and cluster_address() is None:
        worlds = _at_most(worlds, gpus_here(settings.gpu))
    if worlds == [1] and cluster_address() is None and run_cluster_address() is None:
        return _train_here(job, settings.gpu, loop)
    return _train_on_workers(job, settings, worlds, loop)


def _at_most(worlds: Sequence[int], gpus: int) -> list[int]:
    """The largest number of workers for `gpus` GPUs, one on CPUs."""
    return [max(world for world in worlds if world <= max(1, gpus))]


def _require_writable(job: Job) -> None:
    """Raises UserError if a directory of the outputs or of the state cannot be written."""
    outputs = () if job.outputs is None else (job.outputs.model, job.outputs.history, job.outputs.log)
    require_writable(*(path.parent for path in outputs), *(() if job.state is None else (job.state,)))


def _train_here(job: Job, gpu: str, loop: Loop | None) -> dict[str, Any]:
    """The training in this process."""
    began = time.time()
    device = device_here(gpu)
    if loop is None:
        from unseen.training.loop import train

        loop = train
    result = loop(staged(job), 0, 1, device)
    _add_to_log(job, train_seconds=round(time.time() - began, 3))
    return result


def _train_on_workers(
    job: Job, settings: TrainSettings, worlds: Sequence[int], loop: Loop | None
) -> dict[str, Any]:
    """The training on workers that Ray starts."""
    by_gpus = settings.workers == "auto" and len(worlds) > 1  # of the cluster of RAY_ADDRESS
    count = f"{worlds[-1]} worker{'s' * (worlds[-1] > 1)}"
    if len(worlds) > 1:
        count = f"{', '.join(map(str, worlds[:-1]))} or {count}"
    count = "a worker for each GPU" if by_gpus else count
    say(f"train {job.name}: starting Ray and {count} ...")
    began = time.time()
    processes, gpu = worlds[-1], settings.gpu != "no"
    with imported("torch", "pandas"), connection(processes, gpu, prestart=False) as cluster:
        from unseen.cluster.train_workers import fit

        usable = usable_gpu(settings.gpu, cluster)
        if by_gpus:
            worlds = _at_most(worlds, 0 if usable == "no" else cluster.gpus)
        connected = time.time()
        run = fit(job, worlds, usable, cluster, loop)
        returned = time.time()
    ray_seconds = {
        "connect": connected - began,
        "start": run["began"] - connected,
        "return": returned - run["ended"],
        "shutdown": time.time() - returned,
    }
    _add_to_log(
        job,
        ray_seconds={name: round(seconds, 3) for name, seconds in ray_seconds.items()},
        train_seconds=round(run["ended"] - run["began"], 3),
    )
    return dict(run["result"])


def _add_to_log(job: Job, **more: Any) -> None:
    if job.outputs is not None:
        log = json.loads(job.outputs.log.read_text(encoding="utf-8"))
        write_json(job.outputs.log, log | more)
