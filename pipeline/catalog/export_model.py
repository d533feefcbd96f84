"""A model as ONNX, with its preprocessing and a model card, for programs without this project.

model.onnx            input `pixels`: uint8 (B, 3, S, S), RGB; output `embedding`: float32 (B, D), unit length
preprocessing.json    how a picture becomes `pixels`
README.md             model card: origin, licence, training, limits
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from pipeline.catalog.embedder import Embedder
from pipeline.data.embeddings import UNIT
from pipeline.methods import pretrained
from pipeline.runtime.errors import UserError
from pipeline.runtime.files import atomic_directory, write_json

ONNX, PREPROCESSING, CARD = "model.onnx", "preprocessing.json", "README.md"
TOLERANCE = 1e-4  # largest difference of a component between ONNX Runtime and PyTorch


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


def export_model(model: Path, output: Path) -> float:
    """Writes the three files for the model of a directory, and returns the largest difference of a component
    between ONNX Runtime and PyTorch on drawn pictures.

    Raises UserError if the extra `onnx` is not installed, the model has no ONNX form, or the difference
    exceeds `TOLERANCE`; then nothing is written.
    """
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch.onnx needs it
    except ImportError as error:
        raise UserError(
            f"The export needs a package that is not installed: {error.name}.", "pip install 'unseen[onnx]'"
        ) from error
    embedder = Embedder(model)
    size = embedder.input.size
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (3, 3, 4, 4), np.uint8).repeat(size // 4 + 1, 2).repeat(size // 4 + 1, 3)
    example = torch.from_numpy(np.ascontiguousarray(pixels[:, :, :size, :size]))
    module = _Pixels(embedder).cpu().eval()
    with torch.inference_mode():
        expected = module(example).numpy()
    with atomic_directory(output) as directory:
        try:
            torch.onnx.export(
                module,
                (example,),
                directory / ONNX,
                input_names=["pixels"],
                output_names=["embedding"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                external_data=False,
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # torch.onnx has no common class of errors
            message = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(
                f"{model} has no ONNX form: {message}",
                "Use the model from Python: `from unseen import Embedder`.",
            ) from error
        session = onnxruntime.InferenceSession(directory / ONNX, providers=["CPUExecutionProvider"])
        (result,) = session.run(["embedding"], {"pixels": example.numpy()})
        difference = float(np.abs(result - expected).max())
        if not difference <= TOLERANCE:
            raise UserError(
                f"ONNX Runtime and PyTorch differ by {difference:.2g} for {model}, more than {TOLERANCE:g}.",
                "Use the model from Python: `from unseen import Embedder`.",
            )
        write_json(directory / PREPROCESSING, _preprocessing(embedder))
        (directory / CARD).write_text(_card(embedder, difference), encoding="utf-8")
    return difference


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


def _card(embedder: Embedder, difference: float) -> str:
    """The model card in Markdown."""
    about = json.loads(embedder.files()[1].read_text(encoding="utf-8"))
    if embedder.files()[1].name == pretrained.ABOUT:
        facts = {
            "Network": about["network"],
            "Weights": about["weights"],
            "Licence of the weights": about["licence"],
        }
        linear = about.get("linear")
        training = "None: the published embedding."
        if linear:
            measured = (
                ""
                if linear["measured"]
                else " Its accuracy was measured on a layer that fewer classes trained."
            )
            training = (
                f"A linear layer on the published embedding: loss {linear['loss']}, {linear['steps']} steps, "
                f"{linear['photos']:,} photos of {linear['classes']:,} classes.{measured}"
            )
    else:
        recipe = about["recipe"]
        facts = {
            "Network": recipe["backbone"]["name"],
            "Method": recipe["method"],
            "Data set": about["dataset"],
            "Seed": about["seed"],
            "Licence of the weights": "that of the pretrained weights and of the training data",
        }
        training = (
            f"{about['samples']:,} images of {about['classes']:,} classes, protocol "
            f"{recipe['training']['protocol']}. "
            "The full recipe is in recipe.json of the model."
        )
    lines = ["# Model card", "", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += [f"- Fingerprint: {embedder.fingerprint()}", "", "## Training", "", training, "", "## Use", ""]
    lines += [
        f"`{ONNX}` maps pixels to unit vectors of {embedder.dim} dimensions; `{PREPROCESSING}` describes "
        "the pixels. "
        f"ONNX Runtime differed from PyTorch by at most {difference:.1g} in a component.",
        "",
        "## Limits",
        "",
        "A search always has a nearest picture, also for an unknown object: use a threshold that was "
        "measured on the "
        "own photos. The accuracy on photos of another kind is unknown until it is measured there.",
        "",
    ]
    return "\n".join(lines)
