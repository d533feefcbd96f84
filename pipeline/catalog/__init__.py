"""Search over a folder of pictures with a trained model.

The pictures need no labels and belong to no data set.

    Embedder("data/models/folder/ms/0")(["shirt.jpg"])              unit vectors, (1, D) float32
    build(Path("photos"), Path("catalog"), Path("data/models/folder/ms/0"))
    Catalog("catalog").find(["shirt.jpg"], 5)                        the five nearest pictures of each

The commands are `unseen index` and `unseen find`.
"""

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Catalog, Match
from pipeline.catalog.embedder import Embedder

__all__ = ["Catalog", "Embedder", "Match", "build"]
