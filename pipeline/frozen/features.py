"""Features of photos, computed once: a vector of each photo for a network at a size."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from unseen.frozen.embedder import Embedder
from unseen.frozen.pictures import Listed
from unseen.frozen.store import BLOCK, VECTORS, ArrayStore


def features(
    photos: Path, pictures: Listed, model: Path, directory: Path, label: str
) -> Float32[np.ndarray, "N D"]:
    """The unit vectors of the N pictures of a folder by the model of a directory, in the order of `pictures`.

    Vectors in `directory` are used again, if they are of the same model; new ones are added in blocks, so
    that a killed run continues. `label` begins the progress line. Raises UserError as `Embedder` does.
    """
    embedder = Embedder(model)
    vectors = ArrayStore(directory / embedder.fingerprint()[:16], embedder.dim, VECTORS)
    vectors.refresh()
    path_of = {digest: photos / path for digest, path in zip(pictures.sha256, pictures.paths, strict=True)}
    vectors.fill(path_of, BLOCK, lambda paths, _: embedder(paths, label))
    return vectors.rows(pictures.sha256)
