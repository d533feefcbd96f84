"""A trained model's embeddings of the splits of its data set, in float32 whatever it was trained in.

test            test classes, weights chosen on validation classes: what is reported
train           train classes, the same weights: for the analysis of the train-test gap
test-last       test classes, weights of the last iteration
test-untrained  test classes, the network before its first step: the floor
test-best       test classes, the iterate that did best on them, where training.watch_test kept it: not to be quoted

Weights with equal bytes are embedded once, and the file is copied.

Methods that pool by prototypes leave the attributes of the test images beside them, for the analysis of how they transfer.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64

from pipeline.config.stages import ExportSettings
from pipeline.data.embeddings import check, write
from pipeline.data.loader import EvalLoader, normalize
from pipeline.data.shards import Shards
from pipeline.export.scales import AS_IT_IS, check_scales, describe
from pipeline.methods.artifact import Weights, load_method, weights_digest
from pipeline.methods.method import Method
from pipeline.runtime.files import atomic_directory
from pipeline.runtime.progress import Progress

FILES: dict[str, tuple[Weights, str]] = {
    "test": ("weights", "test"),
    "train": ("weights", "train"),
    "test-last": ("last", "test"),
    "test-untrained": ("untrained", "test"),
}
WATCHED: dict[str, tuple[Weights, str]] = {"test-best": ("best_on_test", "test")}


def export_model(shards: Path, model: Path, output: Path, settings: ExportSettings) -> None:
    """Writes the files into `output`, all or none. Rows are embedded in batches of `settings.batch_size` by `settings.workers` processes.

    The tables that the data set has beside its shards (ground truth, pairs) go with them: what judges embeddings reads this directory alone.

    Raises UserError where a part of the model is missing or does not take images at `settings.scales`, an image cannot be decoded, or an embedding is
    no finite unit vector.
    """
    data = Shards(shards)
    with atomic_directory(output) as directory, contextlib.ExitStack() as stack:
        for table in data.manifest.get("extras", {}):
            shutil.copyfile(data.directory / table, directory / table)
        if settings.workers > 1:
            from pipeline.export.scale_out import embedding_workers  # Ray takes seconds to import

            embed = stack.enter_context(embedding_workers(settings))
        written: dict[tuple[str, str], Path] = {}  # by the sha256 of the weights and the split
        watched = WATCHED if (model / "best_on_test.safetensors").is_file() else {}
        for name, (weights, split) in (FILES | watched).items():
            path = directory / f"{name}.arrow"
            key = weights_digest(model, weights), split
            if key in written:  # the last weights may be the selected ones, and both the untrained ones
                shutil.copyfile(written[key], path)
                continue
            rows = data.rows(split)
            if settings.workers > 1:
                found = embed(model, weights, shards, rows, f"export: {name}")
            else:
                loaded = load_method(model, weights)
                check_scales(loaded, settings.scales)
                loader = EvalLoader(data, rows, loaded.recipe.input, settings.batch_size, loader_threads())
                found = embed_rows(loaded.method, loader, device(), f"export: {name}", settings.scales)
            check(f"{model}, {weights}", rows, found.embedding, found.attributes)
            attributes = found.attributes if split == "test" else None
            write(path, rows, data.labels[rows], found.embedding, data.is_query[rows], data.is_gallery[rows], attributes, settings.scales)
            written[key] = path


class Embedded(NamedTuple):
    """Unit vectors of images, and their attributes where the method pools by prototypes."""

    embedding: Float32[np.ndarray, "N D"]
    attributes: Float32[np.ndarray, "N M"] | None


@torch.inference_mode()
def embed_rows(method: Method, loader: EvalLoader, device: torch.device, label: str | None = None, scales: tuple[float, ...] = AS_IT_IS) -> Embedded:
    """The loader's N rows embedded in its order, each at all `scales`: evaluation mode, float32 throughout (no autocast, no TF32).

    `label` shows progress.
    """
    method = method.to(device).eval()
    rows: Int64[np.ndarray, N] = loader.rows
    embeddings, attributes = np.empty((len(rows), method.dim), np.float32), []
    statistics = method.statistics(loader.input)
    done = 0
    with Progress(label, len(rows), "images") if label else contextlib.nullcontext() as progress, _full_precision():
        for images, ids in loader:
            assert np.array_equal(ids.numpy(), rows[done : done + len(ids)]), "the loader must keep the order of the rows"
            found = describe(method, normalize(images.to(device), *statistics), scales)
            embeddings[done : done + len(ids)] = found.embedding.float().cpu().numpy()
            if found.attributes is not None:
                attributes.append(found.attributes.float().cpu().numpy())
            done += len(ids)
            if progress is not None:
                progress.advance(len(ids))
    return Embedded(embeddings, np.concatenate(attributes) if attributes else None)


def device() -> torch.device:
    """The GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def loader_threads() -> int:
    """Cores this process may use; decoding keeps no more than eight of them busy in front of one GPU."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Convolutions and products of float32 in float32, and the same algorithm each time: cuDNN takes TF32 and the fastest one otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
