"""What embeds the photos of a catalog and its queries: its model in PyTorch, or the ONNX model beside it.

ONNX Runtime starts in a tenth of the time of PyTorch, needs a third of its memory and embeds three times as
many photos on a CPU. Decoding, resizing and cropping give the same pixels (resample.py), and `index` stores
the ONNX model only if the vectors of photos of the catalog are those of PyTorch within `TOLERANCE`.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Float32

from unseen.data.centre import Resize, centre_crop
from unseen.data.decode import decode
from unseen.data.resample import resampled
from unseen.data.settings import Input
from unseen.frozen.encoded import Picture, Pictures
from unseen.runtime.cores import loader_threads_of
from unseen.runtime.progress import Progress

ONNX = "model.onnx"  # pixels -> embedding (export_model.py)
INPUT = {"size", "resize", "fit", "interpolation"}  # settings of the centre crop
TOLERANCE = 1e-4  # ||z - z'||, and so the largest difference of a similarity


class Engine(Protocol):
    """Pictures -> unit vectors."""

    def __call__(self, pictures: Sequence[Picture]) -> Float32[np.ndarray, "N D"]: ...


class OnnxEngine:
    """An ONNX model on the CPU. Each of `threads` (None: one for each core, at most 8) decodes and embeds one
    picture at a time, so that a vector does not depend on the other pictures. `resize`: with the pixels of
    `resampled`, which needs no PyTorch. Raises UserError for a picture that cannot be read."""

    def __init__(
        self, model: Path, input: Input, threads: int | None = None, resize: Resize = resampled
    ) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._input, self._resize = input, resize
        self._threads = threads or loader_threads_of(1)

    def __call__(self, pictures: Sequence[Picture], label: str | None = None) -> Float32[np.ndarray, "N D"]:
        source = Pictures(pictures)
        vectors = []
        with (
            Progress(label, len(pictures), "images") as progress,
            ThreadPoolExecutor(self._threads) as pool,
        ):
            for vector in pool.map(lambda row: self._embed(source, row), range(len(pictures))):
                vectors.append(vector)
                progress.advance(1)
        return np.concatenate(vectors)

    def _embed(self, source: Pictures, row: int) -> Float32[np.ndarray, "1 D"]:
        try:
            picture = decode(source.image(row))
        except ValueError as error:
            raise source.undecodable(row, str(error)) from error
        crop = centre_crop(picture, self._input, self._resize)
        pixels = np.ascontiguousarray(crop.transpose(2, 0, 1)[None])
        vector: Float32[np.ndarray, "1 D"]
        (vector,) = self._session.run(["embedding"], {"pixels": pixels})
        return vector


def runs_onnx() -> bool:
    """Whether ONNX Runtime embeds: it is installed, and there is no NVIDIA GPU, on which PyTorch embeds many
    photos faster."""
    return find_spec("onnxruntime") is not None and not any(Path("/dev").glob("nvidia[0-9]*"))
