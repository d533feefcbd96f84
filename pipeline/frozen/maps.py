"""The maps of photos by a frozen network, computed once.

    <digest>/<first photo>.arrow   sha256 and values (backbone.py) of a block of photos; float16,
    memory-mapped

float16 rounds a value by a relative 5e-4 at most. The memory that a training needs is that of its batches;
the operating system keeps as much of the files as fits. A killed run continues after its last block.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float16, Float32, Int
from torch import Tensor

from unseen.data.heif import readable
from unseen.data.loader import EvalLoader, normalize
from unseen.data.settings import Input
from unseen.frozen.embedder import encoded, name_of
from unseen.frozen.network import WEIGHTS, Network, load_network, write_network
from unseen.frozen.store import read_or_remove
from unseen.frozen.trunk import Layout, packed
from unseen.networks.backbone import Backbone
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.digest import sha256_of
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_file, write_json
from unseen.runtime.progress import Progress
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


class Maps:
    """The cached maps of N photos, in their order."""

    def __init__(
        self, layout: Layout, blocks: Sequence[np.ndarray], places: Sequence[tuple[int, int]]
    ) -> None:
        """blocks: rows of values. places: block and row of each photo."""
        self.layout, self._blocks, self._places = layout, blocks, places

    def __len__(self) -> int:
        return len(self._places)

    def rows(self, photos: Int[np.ndarray, "n"]) -> Float32[Tensor, "n V"]:
        """The values of some photos."""
        stored = np.empty((len(photos), self.layout.width), np.float16)
        for row, photo in enumerate(photos.tolist()):
            block, place = self._places[photo]
            stored[row] = self._blocks[block][place]
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
            backbone(torch.zeros(1, 3, loaded.input.size, loaded.input.size))
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
    return Trunk(backbone, settings, loaded.input, digest)


def maps_of(
    photos: Sequence[Path], digests: Sequence[str], network: Trunk, directory: Path, label: str
) -> Maps:
    """The maps of N photos, whose files have the sha256 `digests`. Files of `directory` are used again;
    damaged ones are removed and computed again.

    Raises UserError for a photo that cannot be read, and for maps with values outside the range of float16.
    """
    store = directory / network.digest[:16]
    known = _known(store)
    path_of = dict(zip(digests, photos, strict=True))
    new = [digest for digest in path_of if digest not in known]
    if new:
        with Progress(label, len(new), "images") as progress:
            for start in range(0, len(new), BLOCK):
                block = new[start : start + BLOCK]
                _write(
                    store, block, _computed([path_of[digest] for digest in block], network, progress, store)
                )
        known = _known(store)
    names = sorted({path for path, _ in known.values()})
    place_of = {path: index for index, path in enumerate(names)}
    layout = _layout(store)
    assert layout is not None, "written with the first maps"
    blocks = [_values(path, layout.width) for path in names]
    return Maps(layout, blocks, [(place_of[known[digest][0]], known[digest][1]) for digest in digests])


def _computed(
    photos: Sequence[Path], network: Trunk, progress: Progress, store: Path
) -> Float16[np.ndarray, "n V"]:
    assert network.input.mean is not None
    assert network.input.std is not None
    loader = EvalLoader(_Files(photos), np.arange(len(photos)), network.input, BATCH, loader_threads_of(1))
    place = device()
    backbone = network.backbone.to(place)
    parts = []
    for images, ids in loader:
        with torch.inference_mode():
            features = backbone(normalize(images.to(place), network.input.mean, network.input.std))
        parts.append(packed(features).to(torch.float16).cpu())
        if not parts[-1].isfinite().all():
            row = int((~parts[-1].isfinite()).any(dim=1).nonzero()[0])
            raise UserError(
                f"The maps of {photos[int(ids[row])]} have values outside the range of float16.",
                "Choose another network, or omit the head: --head none.",
            )
        progress.advance(len(ids))
    layout = Layout.of(network.backbone.stages, features)
    if _layout(store) != layout:
        write_json(store / LAYOUT, layout._asdict())
    return torch.cat(parts).numpy()


def _write(store: Path, digests: Sequence[str], values: Float16[np.ndarray, "n V"]) -> None:
    rows = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    table = pa.table({"sha256": list(digests), "values": rows})
    with (
        atomic_file(store / f"{digests[0]}.arrow") as aside,
        pa.OSFile(str(aside), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)


def _layout(store: Path) -> Layout | None:
    """The layout of the maps in a directory; None without one, or if it is damaged."""
    path = store / LAYOUT
    if not path.exists():
        return None
    return read_or_remove(path, lambda path: Layout.from_plain(json.loads(path.read_text(encoding="utf-8"))))


def _known(store: Path) -> dict[str, tuple[Path, int]]:
    """File and row of each photo, by its sha256. Damaged files are removed."""
    known: dict[str, tuple[Path, int]] = {}
    layout = _layout(store)
    if layout is None:
        return known
    for path in sorted(store.glob("*.arrow")):
        names = read_or_remove(path, partial(_digests, width=layout.width))
        known |= {digest: (path, row) for row, digest in enumerate(names or [])}
    return known


def _digests(path: Path, width: int) -> list[str]:
    """The digests of a block. Raises ValueError, OSError or pa.ArrowException if it is damaged."""
    with pa.memory_map(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        expected = pa.schema({"sha256": pa.string(), "values": pa.list_(pa.float16(), width)})
        if not table.schema.equals(expected) or len(table["values"].chunks) != 1:
            raise ValueError(f"it does not contain one block of maps with {width} values")
        (values,) = table["values"].chunks
        if table["sha256"].null_count or values.null_count or values.values.null_count:
            raise ValueError("it has rows without a value")
        digests: list[str] = table["sha256"].to_pylist()
    return digests


def _values(path: Path, width: int) -> Float16[np.ndarray, "n V"]:
    """The values of a block, memory-mapped."""
    (chunk,) = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["values"].chunks
    values: np.ndarray = chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, width)
    return values


class _Files:
    """Photos by their position in a list."""

    def __init__(self, photos: Sequence[Path]) -> None:
        self.photos = photos

    def image(self, row: int) -> np.ndarray:
        return np.frombuffer(readable(encoded(self.photos[row])), np.uint8)

    def box(self, row: int) -> tuple[float, float, float, float] | None:
        return None

    def undecodable(self, row: int, reason: str) -> UserError:
        return UserError(
            f"{name_of(self.photos[row])} cannot be read as a picture: {reason}.",
            "Convert it to JPEG or PNG, or leave it out.",
        )
