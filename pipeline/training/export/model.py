"""Embeds the splits of a data set with a trained model, in float32 regardless of the precision of training.

test            test classes, the selected weights: the reported result
train           train classes, the same weights: for the analysis of the train-test gap
test-last       test classes, weights of the last iteration
test-untrained  test classes, the network before its first step
test-features   test classes, the features of that network without a projection (features.py): the floor
test-best       test classes, the best iterate on them, if training.watch_test is set: not for publication

Weights with equal bytes are embedded once, and the file is copied. So is the file of the features of a method
without a layer after its pooling.

If the pooling of a method has prototypes, the file of the test images also contains their attributes, for the
analysis of zero-shot transfer.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

from unseen.config.stages import ExportSettings
from unseen.data.embeddings import check, write
from unseen.data.loader import EvalLoader, normalize
from unseen.data.shards import Shards
from unseen.methods.artifact import LoadedModel, training_settings, weights_digest
from unseen.methods.method import Method
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.files import atomic_directory
from unseen.runtime.progress import Progress
from unseen.training.embed import embed_rows
from unseen.training.export.features import START, Network, embeds_features, load_network
from unseen.training.export.scales import SINGLE_SCALE, check_scales, describe

FILES: dict[str, tuple[Network, str]] = {
    "test": ("weights", "test"),
    "train": ("weights", "train"),
    "test-last": ("last", "test"),
    "test-untrained": ("untrained", "test"),
    "test-features": ("features", "test"),
}
BEST_ON_TEST: dict[str, tuple[Network, str]] = {"test-best": ("best_on_test", "test")}


class Embedded(NamedTuple):
    """Unit vectors of images, and their attributes if the pooling of the method has prototypes."""

    embedding: Float32[np.ndarray, "N D"]
    attributes: Float32[np.ndarray, "N M"] | None


# Embeds rows of shards in their order. Arguments: model, network, shards, rows, label of the progress line.
Embed = Callable[[Path, Network, Path, np.ndarray, str], Embedded]


def export_model(
    shards: Path,
    model: Path,
    output: Path,
    settings: ExportSettings,
    embed: Embed | None = None,
) -> None:
    """Writes the files into `output`, all or none.

    `embed` replaces the embedding in this process; pipeline/cluster/export.py passes one that uses workers.
    The additional tables of a data set (ground truth, pairs) are copied, because evaluation reads only this
    directory.

    Raises UserError if a file of the model is missing, the model does not accept images at `settings.scales`,
    an image cannot be decoded, or an embedding is not a finite unit vector.
    """
    data, embed = Shards(shards), embed or LocalEmbedder(settings, loader_threads_of(1, device().type))
    scales, protocol = settings.scales, training_settings(model).protocol
    with atomic_directory(output) as directory:
        written: dict[tuple[str, bool, str], Path] = {}  # (sha256 of the weights, with a head, split) -> file
        for table in data.manifest.get("extras", {}):
            shutil.copyfile(data.directory / table, directory / table)
        best_on_test = BEST_ON_TEST if (model / "best_on_test.safetensors").is_file() else {}
        for name, (network, split) in (FILES | best_on_test).items():
            path = directory / f"{name}.arrow"
            key = *_identity(model, network), split
            if key in written:  # selected, last and untrained weights can be equal
                shutil.copyfile(written[key], path)
                continue
            rows = data.rows(split)
            embedded = embed(model, network, shards, rows, f"export: {name}")
            check(f"{model}, {network}", rows, embedded.embedding, embedded.attributes)
            attributes = embedded.attributes if split == "test" else None
            write(
                path,
                rows,
                data.labels[rows],
                embedded.embedding,
                is_query=data.is_query[rows],
                is_gallery=data.is_gallery[rows],
                attributes=attributes,
                scales=scales,
                training_protocol=protocol,
            )
            written[key] = path


def _identity(model: Path, network: Network) -> tuple[str, bool]:
    """What determines the embeddings of a network of a model: the sha256 of its weights, and whether its head
    is applied."""
    if network != "features":
        return weights_digest(model, network), True
    return weights_digest(model, START), embeds_features(model)


class LocalEmbedder:
    """An `Embed` in this process, with the threads of torch that the recipe of the model sets. It reuses the
    model and the shards of the previous call if they are the same."""

    def __init__(self, settings: ExportSettings, loader_threads: int) -> None:
        self.settings, self.loader_threads = settings, loader_threads
        self.loaded: tuple[tuple[Path, Network], LoadedModel] | None = None
        self.data: tuple[Path, Shards] | None = None

    def __call__(
        self,
        model: Path,
        network: Network,
        shards: Path,
        rows: Int64[np.ndarray, "N"],
        label: str | None = None,
    ) -> Embedded:
        if self.data is None or self.data[0] != shards:
            self.data = shards, Shards(shards)
        if self.loaded is None or self.loaded[0] != (model, network):
            self.loaded = None  # free its memory before the next model is loaded
            next_model = load_network(model, network)
            check_scales(next_model, self.settings.scales)
            self.loaded = (model, network), next_model
        data, loaded, settings = self.data[1], self.loaded[1], self.settings
        loader = EvalLoader(data, rows, loaded.recipe.input, settings.batch_size, self.loader_threads)
        with compute_threads(loaded.recipe.training.threads):
            return embed_images(loaded.method, loader, device(), label, settings.scales)


def embed_images(
    method: Method,
    loader: EvalLoader,
    device: torch.device,
    label: str | None = None,
    scales: tuple[float, ...] = SINGLE_SCALE,
) -> Embedded:
    """The embeddings of the loader's N rows in its order, each at all `scales`, in eval mode and float32 (no
    autocast, no TF32).

    `label` shows progress under that name.
    """
    method = method.to(device).eval()
    statistics = method.statistics(loader.input)

    def forward(images: Tensor) -> tuple[Tensor, ...]:
        outputs = describe(method, normalize(images, *statistics), scales)
        values = (outputs.embedding, outputs.attributes)
        return tuple(each.float() for each in values if each is not None)

    with Progress(label, len(loader.rows), "images") as progress, _full_precision():
        outputs = embed_rows(forward, loader, device, progress)
    embedding, *attributes = outputs or (np.empty((0, method.dim), np.float32),)
    return Embedded(embedding, attributes[0] if attributes else None)


@contextlib.contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Sets the number of torch's threads, and restores it at the end. With another number, a product on a CPU
    may round differently."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextlib.contextmanager
def _full_precision() -> Iterator[None]:
    """Computes convolutions and products of float32 in float32 with deterministic algorithms. The default of
    cuDNN is TF32 and the fastest algorithm."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
