"""A model for programs without this project, with its preprocessing and a model card.

model.onnx            input `pixels`: uint8 (B, 3, S, S), RGB; output `embedding`: float32 (B, D), unit length
model.pt2             the same for PyTorch alone: torch.export.load("model.pt2").module()(pixels)
preprocessing.json    how a picture becomes `pixels`
README.md             model card (model_card.py)
"""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from unseen.data.embeddings import UNIT
from unseen.frozen.embedder import Embedder
from unseen.runtime.errors import UserError
from unseen.runtime.files import atomic_directory, system_problem, write_json
from unseen_search.catalog.engine import ONNX
from unseen_search.catalog.model_card import Accuracy, card

TORCH, PREPROCESSING, CARD = "model.pt2", "preprocessing.json", "README.md"
TOLERANCE = 1e-4  # largest difference of a component from PyTorch


class _Pixels(nn.Module):
    """pixels -> embedding: z = embed((x / 255 - mean) / std)."""

    mean: Tensor
    std: Tensor

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.method = embedder.method
        mean, std = self.method.statistics(embedder.input)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, pixels: UInt8[Tensor, "B 3 S S"]) -> Float[Tensor, "B D"]:
        images = (pixels.to(torch.float32) / 255 - self.mean) / self.std
        return self.method.describe(images).embedding


def export_model(model: Path, output: Path, accuracy: Accuracy | None = None) -> dict[str, float]:
    """Writes the files for the model of a directory. Returns, by file, the largest difference of a component
    from PyTorch on drawn pictures.

    Raises UserError if the extra `onnx` is not installed, the model cannot be traced or has no ONNX form, or
    a difference exceeds `TOLERANCE`; then nothing is written.
    """
    embedder = Embedder(model)
    with atomic_directory(output) as directory:
        program, example, expected = _traced(embedder, model)
        with _errors(model, "cannot be traced"), warnings.catch_warnings():
            # The weights are on the CPU, where the warning of torch about shared tensors does not apply.
            warnings.filterwarnings("ignore", "No complete tensor found in the group")
            torch.export.save(program, directory / TORCH)
        _write_onnx(program, directory / ONNX, model)
        with torch.inference_mode():
            traced = torch.export.load(directory / TORCH).module()(example).numpy()
        session = onnxruntime().InferenceSession(directory / ONNX, providers=["CPUExecutionProvider"])
        (result,) = session.run(["embedding"], {"pixels": example.numpy()})
        differences = {}
        for file, vectors in ((ONNX, result), (TORCH, traced)):
            differences[file] = float(np.abs(vectors - expected).max())
            if not differences[file] <= TOLERANCE:
                raise UserError(
                    f"{file} and PyTorch differ by {differences[file]:.2g} for {model}, more than "
                    f"{TOLERANCE:g}.",
                    "Use the model from Python: `from unseen import Embedder`.",
                )
        write_json(directory / PREPROCESSING, _preprocessing(embedder))
        (directory / CARD).write_text(card(embedder, accuracy, differences), encoding="utf-8")
    return differences


def export_onnx(embedder: Embedder, model: str, path: Path) -> None:
    """Writes model.onnx alone. model: its name in messages. Raises UserError as `export_model` does."""
    _write_onnx(_traced(embedder, model)[0], path, model)


def onnxruntime() -> Any:
    """The module. Raises UserError if a package of the export is not installed."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise UserError(
            f"The export needs a package that is not installed: {error.name}.", "pip install 'unseen[onnx]'"
        ) from error
    return onnxruntime


def _traced(embedder: Embedder, model: str | Path) -> tuple[torch.export.ExportedProgram, Tensor, np.ndarray]:
    """The program, drawn pictures, and their vectors."""
    onnxruntime()
    example = _drawn(embedder.input.size)
    module = _Pixels(embedder).cpu().eval()
    with torch.inference_mode():
        expected = module(example).numpy()
    with _errors(model, "cannot be traced"):
        program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    return program, example, expected


def _write_onnx(program: torch.export.ExportedProgram, path: Path, model: str | Path) -> None:
    with _errors(model, "has no ONNX form"):
        exported = torch.onnx.export(
            program, (), input_names=["pixels"], output_names=["embedding"], dynamo=True, verbose=False
        )
        assert exported is not None, "of dynamo"
        for node in exported.model.graph.all_nodes():
            node.metadata_props.clear()  # lines of source with the paths of this installation
        exported.save(path, external_data=False)


def _drawn(size: int) -> UInt8[Tensor, "B 3 S S"]:
    """Three pictures of coloured squares. More than one: a batch of one would fix the size of the batch."""
    squares = np.random.default_rng(0).integers(0, 256, (3, 3, 4, 4), np.uint8)
    side = size // 4 + 1
    pixels = squares.repeat(side, 2).repeat(side, 3)[:, :, :size, :size]
    return torch.from_numpy(np.ascontiguousarray(pixels))


@contextlib.contextmanager
def _errors(model: str | Path, problem: str) -> Iterator[None]:
    """Turns an error of torch.export or torch.onnx, which have no common class, into a UserError. A problem
    of the disk or the memory remains: it is none of the model."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="copyreg")  # torch's classes
            yield
    except Exception as error:
        if system_problem(error) is not None:
            raise
        message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"{model} {problem}: {message}", "Use the model from Python: `from unseen import Embedder`."
        ) from error


def _preprocessing(embedder: Embedder) -> dict[str, Any]:
    input = embedder.input
    mean, std = embedder.method.statistics(input)
    return {
        "colour": "RGB; EXIF orientation applied; transparent pixels blended with white",
        "resize": input.resize or input.size,
        "resized_sides": "both"
        if input.fit == "square"
        else "the shorter one; the other keeps the ratio, rounded down",
        "interpolation": f"{input.interpolation}, antialiased, rounded to 8 bits",
        "crop": {"kind": "centre", "size": input.size},
        "input": {"name": "pixels", "type": "uint8", "shape": ["batch", 3, input.size, input.size]},
        "output": {"name": "embedding", "type": "float32", "shape": ["batch", embedder.dim], "length": 1.0},
        "normalisation_in_model": {"mean": list(mean), "std": list(std)},
        "similarity": "the inner product of two embeddings is their cosine",
        "length_tolerance": UNIT,
    }
