"""Pictures -> unit vectors by a trained model or by a published network.

Decoding is that of stage `export`; cropping and normalisation are those of the model.
"""

import contextlib
import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from PIL import Image

from unseen.data.embeddings import UNIT
from unseen.data.loader import EvalLoader
from unseen.frozen import network as pretrained
from unseen.frozen.encoded import BATCH, Picture, Pictures, Precision, pictures_of
from unseen.frozen.training_classes import FILE, is_network, training_classes
from unseen.methods.artifact import load_method
from unseen.methods.method import Method
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.errors import UserError
from unseen.training.export.model import device, embed_images

COLLAPSED = 1e-6  # 1 - cosine of two different pictures below which a model does not distinguish them
WEIGHTS, RECIPE = "weights.safetensors", "recipe.json"
_ON_CPU = 2  # images at a time: as fast as BATCH on a CPU within 10%, in 300 MiB less


class Embedder:
    """The model of a directory: weights.safetensors and recipe.json, as stage `train` writes it, or
    network.json of a published network (pipeline/frozen/network.py). Or a published network itself.

    `precision`: that of the network's products; vectors are float32 of unit length in both. `where`: the
    device; None: the GPU if there is one. Raises UserError for files that are missing or damaged, and for a
    network that cannot be built; and for a weight that is NaN or infinite.
    """

    def __init__(
        self,
        model: "str | Path | pretrained.Network",
        precision: Precision = "float32",
        where: torch.device | None = None,
    ) -> None:
        self.precision: Precision = precision
        self.directory: Path | None = None
        self._method: Method
        with _float32():
            if isinstance(model, pretrained.Network):
                (self._method, self.input), _ = pretrained.build_network(model)
            else:
                self.directory = Path(model)
                if is_network(self.directory):
                    self._method, self.input = pretrained.load_network(self.directory)
                else:
                    loaded = load_method(self.directory)
                    self._method, self.input = loaded.method, loaded.recipe.input
        self._device = where or device()
        self._require_finite(model)

    def _require_finite(self, model: "str | Path | pretrained.Network") -> None:
        bad = [name for name, value in self.state().items() if not bool(torch.isfinite(value).all())]
        if bad:
            source = model.name if isinstance(model, pretrained.Network) else self.files()[0]
            raise UserError(
                f"{source} cannot embed pictures: {len(bad):,} tensors have NaN or infinity, first {bad[0]}.",
                _remedy(isinstance(model, pretrained.Network) or is_network(Path(model))),
            )

    @property
    def dim(self) -> int:
        """D, the number of dimensions of the vectors."""
        return self._method.dim

    @property
    def device(self) -> torch.device:
        """Where the model runs."""
        return self._device

    @property
    def method(self) -> Method:
        """The module that embeds normalised images, in eval mode."""
        return self._method

    def files(self) -> list[Path]:
        """Weights and description of the model, and the names of its training classes if they are beside it.
        Raises ValueError for a network without a directory."""
        if self.directory is None:
            raise ValueError("a network that was not loaded from a directory has no files")
        if is_network(self.directory):
            files = pretrained.files_of(self.directory)
        else:
            files = [self.directory / WEIGHTS, self.directory / RECIPE]
        names = self.directory / FILE
        return [*files, names] if names.is_file() else files

    def fingerprint(self) -> str:
        """sha256 of the files that determine vectors: all but the names of the training classes. Vectors of
        models with different fingerprints are not comparable."""
        digest = hashlib.sha256()
        for path in self.files():
            if path.name != FILE:
                digest.update(path.read_bytes())
        return digest.hexdigest()

    @property
    def training_classes(self) -> frozenset[str] | None:
        """The names of the training classes; empty for a published network, None if they are unknown."""
        return frozenset() if self.directory is None else training_classes(self.directory)

    def tensors(self) -> Iterator[torch.Tensor]:
        """The parameters and buffers themselves."""
        yield from self._method.parameters()
        yield from self._method.buffers()

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        return self._method.state_dict()

    def __call__(
        self,
        pictures: Picture | Sequence[Picture],
        label: str | None = None,
        loader_threads: int | None = None,
    ) -> Float32[np.ndarray, "N D"]:
        """Unit vectors of N pictures, in their order, or of one. `label` is the name of the progress line.
        `loader_threads` decode; None: as many as one process uses.

        Raises UserError with the name of a picture that is missing or cannot be decoded.
        """
        pictures = pictures_of(pictures)
        rows = np.arange(len(pictures), dtype=np.int64)
        threads = loader_threads or loader_threads_of(1, self._device.type)
        images = BATCH if self._device.type == "cuda" else _ON_CPU
        loader = EvalLoader(Pictures(pictures), rows, self.input, images, threads)
        is_bfloat16 = self.precision == "bfloat16"
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_bfloat16):
            return embed_images(self._method, loader, self._device, label).embedding


def require_distinct(embedder: Embedder) -> None:
    """Raises UserError for a model that cannot tell pictures apart.

    Two different pictures get the same vector or none, as from a model of zeros.
    """
    problem = f"{embedder.files()[0]} cannot embed pictures: "
    remedy = _remedy(embedder.files()[1].name == pretrained.ABOUT)
    vectors = embedder([_drawn(1), _drawn(2)])
    norms = np.linalg.norm(vectors, axis=1)
    if not (np.abs(norms - 1) <= UNIT).all():
        raise UserError(f"{problem}the vector of a picture has the length {norms.min():g}.", remedy)
    if float(vectors[0] @ vectors[1]) > 1 - COLLAPSED:
        raise UserError(f"{problem}two different pictures get the same vector.", remedy)


def _remedy(is_network: bool) -> str:
    if is_network:
        return "Name other weights with --weights, or another network with --network."
    return "Train the model again, or use another one."


def _drawn(seed: int) -> bytes:
    """A PNG of coloured squares."""
    stream = io.BytesIO()
    squares = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), np.uint8)
    Image.fromarray(squares.repeat(16, axis=0).repeat(16, axis=1)).save(stream, "PNG")
    return stream.getvalue()


@contextlib.contextmanager
def _float32() -> Iterator[None]:
    """Networks are built in float32 within the block, whatever the default of the caller is."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(default)
