"""Stage `export` on several processes of this machine or of the cluster of RAY_ADDRESS: same bytes as on one.

The rows are split into runs of whole batches. So every image is embedded in the batch, and with the number of
threads, that one process would use: sums of floating-point numbers depend on both.
"""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from unseen.cluster.connection import cluster_address, connection, run_cluster_address
from unseen.cluster.shared import require_shared, shared_nodes
from unseen.config.stages import ExportSettings
from unseen.methods.artifact import training_settings
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.errors import UserError
from unseen.runtime.progress import Progress
from unseen.training.export.features import Network
from unseen.training.export.model import Embed, Embedded, LocalEmbedder, export_model

_RUNS = 8  # per worker, so that a slower worker gets fewer


def run_export(shards: Path, model: Path, output: Path, settings: ExportSettings) -> None:
    """`export_model` on `settings.workers` processes. One is this process, without Ray, unless RAY_ADDRESS
    names a cluster, whose head often has no GPU, or the stage shares the GPUs of this machine with others
    (pipeline/cluster/run_cluster.py)."""
    with embedder(settings, training_settings(model).threads) as embed:
        export_model(shards, model, output, settings, embed)


@contextlib.contextmanager
def embedder(settings: ExportSettings, threads: int) -> Iterator[Embed]:
    """Yields the embedding by `settings.workers` processes, see `run_export`. `threads`: training.threads of
    the model; a process reserves as many CPUs of a cluster."""
    if settings.workers == 1 and cluster_address() is None and run_cluster_address() is None:
        yield LocalEmbedder(settings, loader_threads_of(1))
        return
    with embedding_workers(settings, threads) as embed:
        yield embed


class Worker:
    """An actor: embeds runs of rows."""

    def __init__(self, settings: ExportSettings, loader_threads: int) -> None:
        self.local_embedder = LocalEmbedder(settings, loader_threads)

    def embed(self, model: Path, network: Network, shards: Path, rows: Int64[np.ndarray, "N"]) -> Embedded:
        """Embeddings and attributes of `rows`, in their order. Raises UserError if this node lacks the
        directories, which `export_model` has opened on another one."""
        require_shared(shards)
        require_shared(model)
        return self.local_embedder(model, network, shards, rows)


@contextlib.contextmanager
def embedding_workers(settings: ExportSettings, threads: int) -> Iterator[Embed]:
    """Starts `settings.workers` workers of `threads` CPUs and yields the embedding by them.

    Raises UserError if the cluster lacks the resources, and the UserErrors of the workers.
    """
    with connection(settings.workers, object_store=256 * 2**20) as cluster:
        import ray
        from ray.util import ActorPool

        gpu = "auto" if cluster.gpus >= settings.workers else "no"
        bundle = cluster.claim(settings.workers, threads, gpu)
        selector = {} if cluster.private else shared_nodes(bundle, settings.workers)
        resources = {"num_cpus": bundle["CPU"], "num_gpus": bundle.get("GPU", 0)}
        remote = ray.remote(**resources, label_selector=selector or None)(Worker)
        arguments = settings, loader_threads_of(1)
        pool = ActorPool([remote.remote(*arguments) for _ in range(settings.workers)])

        def embed(
            model: Path,
            network: Network,
            shards: Path,
            rows: Int64[np.ndarray, "N"],
            label: str,
        ) -> Embedded:
            of = Path(model).resolve(), network, Path(shards).resolve()
            parts: list[Embedded] = []
            with Progress(label, len(rows), "images") as progress:
                try:
                    for part in pool.map(
                        lambda actor, run: actor.embed.remote(*of, run),
                        runs(rows, settings.batch_size, settings.workers),
                    ):
                        parts.append(part)
                        progress.advance(len(part.embedding))
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, UserError):
                        raise error.cause from None
                    raise
            embeddings = np.concatenate([part.embedding for part in parts])
            attributes = [part.attributes for part in parts if part.attributes is not None]
            return Embedded(embeddings, np.concatenate(attributes) if attributes else None)

        yield embed


def runs(rows: Int64[np.ndarray, "N"], batch_size: int, workers: int) -> list[Int64[np.ndarray, "n"]]:
    """`rows` cut into consecutive runs of whole batches (the last may be shorter), a few for each worker."""
    batches = max(1, math.ceil(len(rows) / batch_size / workers / _RUNS))
    size = batches * batch_size
    return [rows[start : start + size] for start in range(0, max(len(rows), 1), size)]
