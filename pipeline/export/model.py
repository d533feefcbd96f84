"""A trained model's embeddings of the splits of its data set, in float32 whatever it was trained in.

test            test classes, weights chosen on validation classes: what is reported
train           train classes, the same weights: for the analysis of the train-test gap
test-last       test classes, weights of the last iteration
test-untrained  test classes, the network before its first step: the floor
test-best       test classes, the iterate that did best on them, where training.watch_test kept it: not to be
quoted

Weights with equal bytes are embedded once, and the file is copied.

Methods that pool by prototypes leave the attributes of the test images beside them, for the analysis of how
they transfer.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64

from pipeline.config.stages import ExportSettings
from pipeline.data.embeddings import check, write
from pipeline.data.loader import EvalLoader, normalize
from pipeline.data.shards import Shards
from pipeline.export.scales import SINGLE_SCALE, check_scales, describe
from pipeline.methods.artifact import LoadedModel, Weights, load_method, weights_digest
from pipeline.methods.method import Method
from pipeline.runtime.cores import usable_cores
from pipeline.runtime.files import atomic_directory
from pipeline.runtime.progress import Progress

FILES: dict[str, tuple[Weights, str]] = {
    "test": ("weights", "test"),
    "train": ("weights", "train"),
    "test-last": ("last", "test"),
    "test-untrained": ("untrained", "test"),
}
WATCHED: dict[str, tuple[Weights, str]] = {"test-best": ("best_on_test", "test")}


class Embedded(NamedTuple):
    """Unit vectors of images, and their attributes where the method pools by prototypes."""

    embedding: Float32[np.ndarray, "N D"]
    attributes: Float32[np.ndarray, "N M"] | None


# Embeds rows of shards, in their order: (model, weights, shards, rows, label of the progress line)
Embed = Callable[[Path, Weights, Path, np.ndarray, str], Embedded]


def export_model(
    shards: Path,
    model: Path,
    output: Path,
    settings: ExportSettings,
    embed: Embed | None = None,
) -> None:
    """Writes the files into `output`, all or none.

    `embed` replaces the embedding in this process; pipeline/cluster/export.py passes one that uses workers.
    The tables that a data set has beside its shards (ground truth, pairs) are copied, because evaluation
    reads this directory only.

    Raises UserError where a part of the model is missing or does not take images at `settings.scales`, an
    image cannot be decoded, or an embedding is no finite unit vector.
    """
    data, embed = Shards(shards), embed or LocalEmbedder(settings, loader_threads())
    with atomic_directory(output) as directory:
        written: dict[tuple[str, str], Path] = {}  # by the sha256 of the weights and the split
        for table in data.manifest.get("extras", {}):
            shutil.copyfile(data.directory / table, directory / table)
        watched = WATCHED if (model / "best_on_test.safetensors").is_file() else {}
        for name, (weights, split) in (FILES | watched).items():
            path = directory / f"{name}.arrow"
            key = weights_digest(model, weights), split
            if key in written:  # the last weights may be the selected ones, and both the untrained ones
                shutil.copyfile(written[key], path)
                continue
            rows = data.rows(split)
            embedded = embed(model, weights, shards, rows, f"export: {name}")
            check(f"{model}, {weights}", rows, embedded.embedding, embedded.attributes)
            attributes = embedded.attributes if split == "test" else None
            sides = data.is_query[rows], data.is_gallery[rows]
            write(path, rows, data.labels[rows], embedded.embedding, *sides, attributes, settings.scales)
            written[key] = path


class LocalEmbedder:
    """An `Embed` in this process. It keeps the model and the shards of its last call."""

    def __init__(self, settings: ExportSettings, threads: int) -> None:
        self.settings, self.threads = settings, threads
        self.loaded: tuple[tuple[Path, Weights], LoadedModel] | None = None
        self.data: tuple[Path, Shards] | None = None

    def __call__(
        self,
        model: Path,
        weights: Weights,
        shards: Path,
        rows: Int64[np.ndarray, "N"],
        label: str | None = None,
    ) -> Embedded:
        if self.data is None or self.data[0] != shards:
            self.data = shards, Shards(shards)
        if self.loaded is None or self.loaded[0] != (model, weights):
            self.loaded = None  # frees it before the next model is loaded
            next_model = load_method(model, weights)
            check_scales(next_model, self.settings.scales)
            self.loaded = (model, weights), next_model
        data, loaded, settings = self.data[1], self.loaded[1], self.settings
        loader = EvalLoader(data, rows, loaded.recipe.input, settings.batch_size, self.threads)
        return embed_rows(loaded.method, loader, device(), label, settings.scales)


@torch.inference_mode()
def embed_rows(
    method: Method,
    loader: EvalLoader,
    device: torch.device,
    label: str | None = None,
    scales: tuple[float, ...] = SINGLE_SCALE,
) -> Embedded:
    """The loader's N rows embedded in its order, each at all `scales`: evaluation mode, float32 throughout
    (no autocast, no TF32).

    `label` shows progress.
    """
    method = method.to(device).eval()
    rows: Int64[np.ndarray, N] = loader.rows
    embeddings, attributes = np.empty((len(rows), method.dim), np.float32), []
    statistics = method.statistics(loader.input)
    done = 0
    with (
        Progress(label, len(rows), "images") if label else contextlib.nullcontext() as progress,
        _full_precision(),
    ):
        for images, ids in loader:
            assert np.array_equal(ids.numpy(), rows[done : done + len(ids)]), (
                "the loader must keep the order of the rows"
            )
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
    """The usable cores, at most eight: more threads decode faster than one GPU embeds."""
    return min(8, usable_cores())


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Convolutions and products of float32 in float32, and the same algorithm each time: cuDNN takes TF32 and
    the fastest one otherwise."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
