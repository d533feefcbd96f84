"""Search over a folder of pictures with a trained model.

The pictures belong to no data set and need no labels. With labels an answer names the product, and can be
"unknown" with a stated error rate (unknown.py).

    Embedder("data/models/folder/ms/0")(["shirt.jpg"])              unit vectors, (1, D) float32
    build(Path("photos"), Path("catalog"), Path("data/models/folder/ms/0"))
    Catalog("catalog").find(["shirt.jpg"], 5)                        the five nearest pictures of each

The commands are `unseen index` and `unseen find`.
"""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if TYPE_CHECKING:
    from unseen.evaluation.unknown import Threshold
    from unseen.frozen.embedder import Embedder
    from unseen_search.catalog.answers import Answer, Match, Product
    from unseen_search.catalog.building import build
    from unseen_search.catalog.catalog import Catalog
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = ["Answer", "Catalog", "Embedder", "Match", "Product", "Threshold", "build"]
