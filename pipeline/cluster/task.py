"""Stages evaluate and analyze on a node of the cluster of RAY_ADDRESS: one task of Ray runs the same stage
there, as a process of its own, with the same bytes. DVC and the waiting stage remain on the head.

The process has the environment of the node, but the number of threads of the run (`_THREADS`): Ray sets
OMP_NUM_THREADS to the CPUs of a task.

Stage evaluate, which counts ranks on a GPU where FAISS and torch have one, reserves a GPU of the cluster if
one is free, it compares more than `GPU_PAIRS` pairs of vectors, and train.gpu is not no. The ranks are equal.
Other tasks see no GPU.
"""

import functools
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from unseen.cluster.connection import alive_nodes, cluster_address, connection, lost_nodes
from unseen.cluster.shared import require_shared, shared_nodes
from unseen.config.document import Params
from unseen.config.inputs import TrainInputs, resolved
from unseen.config.resolve import settings
from unseen.config.stages import TrainSettings
from unseen.data.tables import read_table
from unseen.runtime import stage
from unseen.runtime.errors import UserError
from unseen.runtime.names import say

GPU_PAIRS = 10**10  # a few minutes of one core
_RETRIES = 2  # of a task whose worker died, as of a training
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_WAIT_POLICY")


def main(run: Callable[..., None], *axes: str) -> None:
    """`unseen.runtime.stage.main`; where RAY_ADDRESS names a cluster, on one of its nodes. The axes are
    those of a training: dataset, method, seed.

    The task reserves `training.threads` CPUs of the recipe. The exit status is that of the stage.
    """
    if cluster_address() is None:
        stage.main(run, *axes)
        return
    name = Path(sys.argv[0]).stem

    @functools.wraps(run)  # argparse shows its docstring
    def submit(dataset: str, method: str, seed: int) -> None:
        training = resolved(TrainInputs, "train", dataset, method).settings.recipe.training
        cell = (dataset, method, str(seed))
        status = run_on_a_node(name, cell, training.threads, uses_gpu(name, cell))
        if status:
            raise SystemExit(status)

    stage.main(submit, *axes)


def uses_gpu(name: str, cell: Sequence[str]) -> bool:
    """Whether stage `name` of `cell` reserves a GPU if one is free."""
    if name != "evaluate":
        return False
    tables = Path("data/embeddings", *cell).glob("test*.arrow")
    rows = [read_table(path, "Run `dvc repro` to export it again.").num_rows for path in tables]
    return max(rows, default=0) ** 2 > GPU_PAIRS and settings(Params(), "train", TrainSettings).gpu != "no"


def run_on_a_node(name: str, cell: Sequence[str], cpus: int, large: bool = False) -> int:
    """The exit status of stage `name` of `cell`, run on a node as a task of `cpus` CPUs, if it is
    `large` with a free GPU. Its output is written to standard error as it appears.

    Waits until they are free. A task whose worker or node died starts again, at most `_RETRIES` times.
    Raises UserError for a cluster without the resources, for a node without the project, and for a stage that
    a signal ended.
    """
    title = f"{name} {'/'.join(cell)}"
    with connection(1, gpu=False) as cluster:
        nodes: dict[str, str] = {}
        for number in itertools.count():
            gpu = "auto" if large and _free_gpus() else "no"
            bundle = cluster.claim(1, cpus, gpu, nodes if number else None)
            nodes = alive_nodes()
            selector = shared_nodes(bundle, 1)
            with_gpu = " and a GPU" if "GPU" in bundle else ""
            say(f"{title}: starting on {cluster.name} with {cpus} CPUs{with_gpu} ...")
            try:
                return _output(name, cell, bundle, selector)
            except _WorkerDied as error:
                if number == _RETRIES:
                    lost = lost_nodes(nodes)
                    raise UserError(
                        f"The task of {title} died {number + 1} times: {error}",
                        f"{lost} left the cluster: see the logs of Ray there."
                        if lost
                        else "Most often the memory of a node is full: see the logs of Ray there.",
                    ) from error
    raise AssertionError("the loop above returns or raises")


def _free_gpus() -> int:
    import ray

    return int(ray.available_resources().get("GPU", 0))


class _WorkerDied(Exception):
    """Ray lost the worker or the node of the task."""


def _output(name: str, cell: Sequence[str], bundle: Mapping[str, float], selector: Mapping[str, str]) -> int:
    """Runs the task with the resources of `bundle` on a node of `selector`, writes the lines of its output,
    and returns the exit status of the stage."""
    import ray

    threads = {variable: os.environ.get(variable) for variable in _THREADS}
    # Not repeated by Ray, which would omit as many lines as the first attempt had written.
    gpus = int(bundle.get("GPU", 0))
    options = {"num_cpus": bundle["CPU"], "num_gpus": gpus, "max_retries": 0, "num_returns": "streaming"}
    task = ray.remote(**options, label_selector=dict(selector) or None)(_task)
    try:
        for part in map(ray.get, task.remote(stage.ROOT, name, tuple(cell), threads, gpus)):
            if isinstance(part, int):
                return part
            sys.stderr.write(part)
            sys.stderr.flush()
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise _WorkerDied((str(error).strip().splitlines() or [type(error).__name__])[0]) from error
    raise _WorkerDied("it ended without an exit status")


def _task(
    root: Path, name: str, cell: Sequence[str], threads: Mapping[str, str | None], gpus: int = 0
) -> Iterator[str | int]:
    """The task: yields the lines that the stage prints, then its exit status. The stage ends with it."""
    require_shared(root / stage.GRAPH)
    environment = {key: value for key, value in os.environ.items() if key not in (*threads, "RAY_ADDRESS")}
    environment |= {key: value for key, value in threads.items() if value is not None}
    environment[stage.PARENT] = str(os.getpid())
    if not gpus:  # FAISS uses all GPUs that it finds
        environment["CUDA_VISIBLE_DEVICES"] = ""
    process = subprocess.Popen(
        [sys.executable, "-m", f"unseen.stages.{name}", *cell],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    assert process.stdout is not None
    try:
        # A generator in place of the file: Ray sends values, which `yield from` forwards.
        yield from (line for line in process.stdout)
        status = process.wait()
    finally:
        process.terminate()
    if status < 0:
        raise UserError(
            f"Stage {name} of {'/'.join(cell)} was ended by {signal.Signals(-status).name} on node "
            f"{socket.gethostname()}.",
            "Most often the memory of the node is full. docs/reliability.md lists the memory of each stage.",
        )
    yield status
