"""A folder of pictures, embedded, and the model that did it: all that a search service needs, in one directory.

index.faiss         IndexFlatIP over the unit vectors, row i that of picture i: inner products are cosines; any program with FAISS reads it
pictures.parquet    path below the folder of the photographs, sha256 of the file
catalog.json        where the photographs are, their number, the model's name and fingerprint, the files that were left out
model/              weights.safetensors and recipe.json: the model that has to embed the questions
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32

from pipeline.catalog.embedder import Embedder, Picture
from pipeline.runtime.errors import UserError

INDEX, PICTURES, ABOUT, MODEL = "index.faiss", "pictures.parquet", "catalog.json", "model"
_ABOUT_KEYS = {"photos", "pictures", "model", "fingerprint"}
_REMEDY = "Build the catalog again: python -m pipeline.catalog build."


class Match(NamedTuple):
    """A picture of the catalog that was found."""

    path: str  # below the folder of the photographs
    similarity: float  # cosine, -1 to 1


class Catalog:
    """A catalog that `build` made. Raises UserError where a part of it is missing, damaged, or of another catalog."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        self.about: dict[str, Any] = self._read(ABOUT, _about)
        table: pa.Table = self._read(PICTURES, lambda path: pq.read_table(path, memory_map=False))
        self.paths: list[str] = table["path"].to_pylist()
        self.sha256: list[str] = table["sha256"].to_pylist()
        self.index = self._read(INDEX, lambda path: faiss.read_index(str(path)))
        self._embedder: Embedder | None = None
        if not len(self.paths) == self.index.ntotal == self.about["pictures"]:
            raise UserError(f"{self.directory} is damaged: {len(self.paths):,} pictures, {self.index.ntotal:,} vectors.", _REMEDY)

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def photos(self) -> Path:
        """The folder that `path` of a match lies below."""
        return Path(self.about["photos"])

    @property
    def embedder(self) -> Embedder:
        """The model of this catalog, loaded when it is first asked for."""
        if self._embedder is None:
            embedder = Embedder(self.directory / MODEL)
            if embedder.fingerprint() != self.about["fingerprint"]:
                raise UserError(f"{self.directory / MODEL} is not the model that embedded this catalog ({self.about['model']}).", _REMEDY)
            self._embedder = embedder
        return self._embedder

    def vectors(self) -> Float32[np.ndarray, "N D"]:
        """The unit vector of every picture, in the order of `paths`."""
        return self.index.reconstruct_n(0, self.index.ntotal)

    def find(self, pictures: Sequence[Picture], k: int = 10) -> list[list[Match]]:
        """The k pictures of the catalog that are nearest to each of `pictures`, nearest first, by exact search; all of them where there are fewer."""
        if k < 1:
            raise UserError(f"{k} matches were asked for.", "Ask for one or more.")
        if not pictures:
            return []
        similarities, rows = self.index.search(self.embedder(pictures), min(k, len(self)))
        return [
            [Match(self.paths[row], similarity) for row, similarity in zip(*pair, strict=True)]
            for pair in zip(rows.tolist(), similarities.tolist(), strict=True)
        ]

    def _read(self, name: str, reader: Any) -> Any:
        path = self.directory / name
        if not path.is_file():
            raise UserError(f"{path} is missing: {self.directory} is no catalog.", "Build one: python -m pipeline.catalog build.")
        try:
            return reader(path)
        except (OSError, ValueError, RuntimeError, pa.ArrowInvalid) as error:
            raise UserError(f"{path} is damaged: {str(error).splitlines()[0]}.", _REMEDY) from error


def _about(path: Path) -> dict[str, Any]:
    """What catalog.json contains. Raises ValueError if it is not what `build` writes."""
    about = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(about, dict) or not about.keys() >= _ABOUT_KEYS:
        raise ValueError(f"it lacks one of the keys {', '.join(sorted(_ABOUT_KEYS))}")
    return about
