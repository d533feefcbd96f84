"""Embedding on several processes, of this machine or of the cluster of RAY_ADDRESS: same bytes as on one.

Rows are dealt in runs of whole batches, so that every image is embedded in the batch, and with the number of threads, that one process would
have used: sums of floating-point numbers depend on both.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from pipeline.cluster.connection import connection
from pipeline.config.stages import ExportSettings
from pipeline.data.loader import EvalLoader
from pipeline.data.shards import Shards
from pipeline.export.model import Embedded, device, embed_rows, loader_threads
from pipeline.export.scales import check_scales
from pipeline.methods.artifact import Weights, load_method
from pipeline.runtime.errors import UserError
from pipeline.runtime.progress import Progress

_RUNS = 8  # per worker: the slower one gets fewer


class Embedder:
    """A worker: keeps the model that it embedded with last."""

    def __init__(self, threads: int, loader_threads: int, scales: tuple[float, ...]) -> None:
        torch.set_num_threads(threads)
        self.threads, self.scales = loader_threads, scales
        self.name: tuple[Path, str] | None = None
        self.loaded: Any = None

    def embed(self, model: Path, weights: Weights, shards: Path, rows: Int64[np.ndarray, "N"], batch_size: int) -> Embedded:
        """Embeddings and attributes of `rows`, in their order."""
        if self.name != (model, weights):
            loaded = load_method(model, weights)
            check_scales(loaded, self.scales)
            self.loaded, self.name = loaded, (model, weights)
        loader = EvalLoader(Shards(shards), rows, self.loaded.recipe.input, batch_size, self.threads)
        return embed_rows(self.loaded.method, loader, device(), scales=self.scales)


@contextlib.contextmanager
def embedding_workers(settings: ExportSettings) -> Iterator[Callable[..., Embedded]]:
    """Starts `settings.workers` workers and yields embed(model, weights, shards, rows, label) -> Embedded in the order of the rows.

    Raises UserError where the cluster has not got the resources, and whatever a worker raises as one.
    """
    threads = torch.get_num_threads()
    with connection(settings.workers, object_store=256 * 2**20) as cluster:
        import ray
        from ray.util import ActorPool

        bundle = cluster.claim(settings.workers, threads, "auto" if cluster.gpus >= settings.workers else "no")
        remote = ray.remote(num_cpus=bundle["CPU"], num_gpus=bundle.get("GPU", 0))(Embedder)
        pool = ActorPool([remote.remote(threads, loader_threads(), settings.scales) for _ in range(settings.workers)])

        def embed(model: Path, weights: Weights, shards: Path, rows: Int64[np.ndarray, "N"], label: str) -> Embedded:
            place, data = Path(model).resolve(), Path(shards).resolve()
            found: list[Embedded] = []
            with Progress(label, len(rows), "images") as progress:
                try:
                    for part in pool.map(
                        lambda actor, run: actor.embed.remote(place, weights, data, run, settings.batch_size),
                        runs(rows, settings.batch_size, settings.workers),
                    ):
                        found.append(part)
                        progress.advance(len(part.embedding))
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, UserError):
                        raise error.cause from None
                    raise
            embeddings, attributes = zip(*found, strict=True)
            return Embedded(np.concatenate(embeddings), None if attributes[0] is None else np.concatenate(attributes))

        yield embed


def runs(rows: Int64[np.ndarray, "N"], batch_size: int, workers: int) -> list[Int64[np.ndarray, "n"]]:
    """`rows` cut into consecutive runs of whole batches (the last may be shorter), a few for each worker."""
    batches = max(1, math.ceil(len(rows) / batch_size / workers / _RUNS))
    return [rows[start : start + batches * batch_size] for start in range(0, max(len(rows), 1), batches * batch_size)]
