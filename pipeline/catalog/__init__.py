"""A trained model at work, on pictures that belong to no data set: embed a folder once, ask it with new photographs.

    Embedder("data/models/folder/ms/0")(["shirt.jpg"])              unit vectors, (1, D) float32
    build(Path("data/models/folder/ms/0"), Path("photos"), Path("catalog"))
    Catalog("catalog").find(["shirt.jpg"], 5)                        for each picture its five nearest

`python -m pipeline.catalog --help` does the same from a shell.
"""

from pipeline.catalog.build import build
from pipeline.catalog.catalog import Catalog, Match
from pipeline.catalog.embedder import Embedder

__all__ = ["Catalog", "Embedder", "Match", "build"]
