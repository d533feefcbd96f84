"""The maps of photos by a frozen network, computed once.

    <digest>/<first photo>.arrow   values (backbone.py) of a block of photos, an ArrayStore
    <digest>/layout.json           their layout

float16 rounds a value by a relative 5e-4 at most. The memory that a training needs is that of its batches.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float16, Float32, Int
from torch import Tensor

from unseen.data.loader import EvalLoader, normalize
from unseen.data.settings import Input
from unseen.frozen.encoded import Pictures
from unseen.frozen.network import WEIGHTS, Network, load_network, write_network
from unseen.frozen.store import MAPS, ArrayStore
from unseen.frozen.trunk import Layout, packed
from unseen.networks.backbone import Backbone
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import write_json
from unseen.runtime.progress import Progress
from unseen.training.embed import embed_rows
from unseen.training.export.model import device

BLOCK = 256  # photos of a file
BATCH = 32  # photos that the network reads at a time
LAYOUT = "layout.json"


@dataclass(frozen=True)
class Trunk:
    """A frozen network with the stages that a head can read, and how a picture becomes its input."""

    backbone: Backbone  # in eval mode
    settings: dict[str, object]  # block `backbone` of a recipe that builds the same network
    input: Input
    digest: str  # of weights, stages and input
    layout: Layout  # of the maps


class Maps:
    """The cached maps of N photos, in their order."""

    def __init__(self, layout: Layout, store: ArrayStore, digests: Sequence[str]) -> None:
        """digests: sha256 of each photo, which the store contains."""
        self.layout, self._store, self._places = layout, store, store.places(digests)

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, photos: Int[np.ndarray, "n"]) -> Float32[Tensor, "n V"]:
        """The values of some photos."""
        stored = self._store.at(self._places[photos])
        return torch.from_numpy(stored).float()  # several times faster than the conversion of NumPy


def trunk(network: Network, directory: Path, stages: tuple[int, ...] = (-1,)) -> Trunk:
    """The network of a description. `directory` receives its weights, which `settings` name as checkpoint.

    Raises UserError as `write_network` does, and for a network without feature maps or without that stage.
    """
    write_network(network, directory)
    loaded = load_network(directory)
    arguments = dict(network.arguments)
    if hasattr(loaded.method.network, "set_input_size"):
        arguments["img_size"] = loaded.input.size
    path = directory / WEIGHTS
    try:
        backbone = Backbone(network.name, False, path, arguments, stages, "frozen").eval()
        backbone.requires_grad_(False)
        with torch.inference_mode():
            features = backbone(torch.zeros(1, 3, loaded.input.size, loaded.input.size))
    except (ValueError, RuntimeError, AssertionError) as error:
        raise UserError(
            f"{network.name} gives no feature maps: {str(error).splitlines()[0]}",
            "Choose another network, or omit the head: --head none.",
        ) from error
    settings: dict[str, object] = {
        "name": network.name,
        "pretrained": False,
        "checkpoint": str(path),
        "arguments": arguments,
        "stages": list(stages),
        "batch_norm": "frozen",
    }
    identity = [sha256_of(path), network.name, arguments, list(stages), loaded.input.model_dump(mode="json")]
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return Trunk(backbone, settings, loaded.input, digest, Layout.of(backbone.stages, features))


def maps_of(
    photos: Sequence[Path], digests: Sequence[str], network: Trunk, directory: Path, label: str
) -> Maps:
    """The maps of N photos, whose files have the sha256 `digests`. Files of `directory` are used again;
    damaged ones are removed and computed again.

    Raises UserError for a photo that cannot be read, and for maps with values outside the range of float16.
    """
    store = ArrayStore(directory / network.digest[:16], network.layout.width, MAPS)
    store.refresh()
    if new := store.missing(digests):
        write_json(store.directory / LAYOUT, network.layout._asdict())
        with Progress(label, len(new), "images") as progress:
            path_of = dict(zip(digests, photos, strict=True))
            store.fill(path_of, BLOCK, lambda paths, _: _computed(paths, network, progress))
    return Maps(network.layout, store, digests)


def _computed(photos: Sequence[Path], network: Trunk, progress: Progress) -> Float16[np.ndarray, "n V"]:
    mean, std = network.input.mean, network.input.std
    assert mean is not None
    assert std is not None
    loader = EvalLoader(Pictures(photos), np.arange(len(photos)), network.input, BATCH, loader_threads_of(1))
    place = device()
    backbone = network.backbone.to(place)

    def forward(images: Tensor) -> tuple[Float16[Tensor, "b V"]]:
        return (packed(backbone(normalize(images, mean, std))).to(torch.float16),)

    (values,) = embed_rows(forward, loader, place, progress)
    if len(wrong := np.flatnonzero(~np.isfinite(values).all(axis=1))):
        raise UserError(
            f"The maps of {photos[wrong[0]]} have values outside the range of float16.",
            "Choose another network, or omit the head: --head none.",
        )
    return values
