"""The ONNX model of a catalog, checked on photos of the catalog."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unseen.frozen.embedder import Embedder
from unseen.runtime.errors import UserError
from unseen.runtime.names import say
from unseen_search.catalog.engine import INPUT, TOLERANCE, OnnxEngine

PHOTOS = 32  # of a check, evenly spaced


class OnnxModel(NamedTuple):
    """A checked ONNX model."""

    path: Path
    difference: float  # largest ||z - z'|| from PyTorch
    input: dict[str, Any]  # how a picture becomes pixels


def checked_onnx(
    embedder: Embedder,
    path: Path,
    stored: Path | None,
    photos: Sequence[Path],
) -> OnnxModel | None:
    """Writes the ONNX model of `embedder` to `path`, or copies `stored`, that of the same model. None, with
    the reason on the standard error, for a model without an ONNX form, and for vectors of `photos` that
    differ from those of PyTorch by more than `TOLERANCE`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if stored is None:
            from unseen_search.catalog.export_model import export_onnx  # imports torch.export

            say("catalog: write the ONNX model, which embeds without PyTorch")
            export_onnx(embedder, "The model", path)
        else:
            shutil.copyfile(stored, path)
        found = OnnxEngine(path, embedder.input)(photos)
        difference = float(np.linalg.norm(found - embedder(photos), axis=1).max())
        if not difference <= TOLERANCE:
            raise UserError(f"its vectors differ from those of PyTorch by {difference:.2g}.", "")
    except UserError as error:
        say(f"catalog: no ONNX model, PyTorch embeds: {error.what}")
        return None
    return OnnxModel(path, difference, embedder.input.model_dump(include=INPUT))
