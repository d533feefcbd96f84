"""Features of photos, computed once: a vector of each photo for a network at a size."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from unseen.frozen.embedder import Embedder
from unseen.frozen.pictures import Listed
from unseen.frozen.store import BLOCK, StoredVectors, write_vectors


def features(
    photos: Path, pictures: Listed, model: Path, directory: Path, label: str
) -> Float32[np.ndarray, "N D"]:
    """The unit vectors of the N pictures of a folder by the model of a directory, in the order of `pictures`.

    Vectors in `directory` are used again, if they are of the same model; new ones are added in blocks, so
    that a killed run continues. `label` begins the progress line. Raises UserError as `Embedder` does.
    """
    embedder = Embedder(model)
    store = directory / embedder.fingerprint()[:16]
    vectors = StoredVectors()
    vectors.add_files(store, embedder.dim)
    path_of = dict(zip(pictures.sha256, pictures.paths, strict=True))
    new = [digest for digest in path_of if digest not in vectors]
    for start in range(0, len(new), BLOCK):
        block = new[start : start + BLOCK]
        embedded = embedder([photos / path_of[digest] for digest in block], label)
        write_vectors(store / f"{block[0]}.parquet", block, embedded)
    vectors.add_files(store, embedder.dim)
    return vectors.vectors(pictures.sha256)
