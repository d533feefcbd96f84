"""unseen: deep metric learning evaluated on classes that were not seen in training.

    from unseen import Catalog, Embedder, Network, evaluate, head, index, loss, pooling, train

    index(Path("photos"), Path("catalog"))
    index(Path("photos"), Path("catalog"), Network("vit_base_patch16_siglip_256.v2_webli"))
    index(Path("photos"), Path("catalog"), Path("data/models/folder/ms/0"))
    Catalog("catalog").find(["new.jpg"], k=5)
    evaluate(vectors, labels)["map_at_r"]
    loss("multi_similarity")(vectors, labels)      with the published constants
    pooling("gem", channels=2048)(maps)
    head("crt", channels=512)(maps)
    train(images, labels, "ms", output="runs/mine").embed(images)

A name is imported at its first use, so that the command starts quickly.

Letters of the shapes in signatures, the same in every file:

    B  images of a batch           D  embedding dimension        N  gallery (or data set) size
    C  classes                     L  channels of a feature map  Q  queries
    H  height, W  width of a map   M  prototypes                 R  relevant gallery items of a query
    S  samples in a memory         K  neighbours asked for       P  positions of a feature map, P = H W
"""

from typing import TYPE_CHECKING

from unseen.runtime.lazy import lazy

if __name__ != "unseen":  # a second name would make second classes of everything
    raise ImportError(f"import unseen, not {__name__}: the folder is the package unseen")

if TYPE_CHECKING:
    from unseen.evaluation.external import evaluate_vectors as evaluate
    from unseen.evaluation.unknown import Threshold
    from unseen.frozen.embedder import Embedder
    from unseen.frozen.network import Network
    from unseen.methods.by_name import head, loss, pooling
    from unseen.runtime.errors import UserError
    from unseen.runtime.version import __version__
    from unseen.training.fit import train
    from unseen_search.catalog.answers import Answer, Match, Product
    from unseen_search.catalog.building import build as index
    from unseen_search.catalog.catalog import Catalog
else:
    __getattr__, __dir__ = lazy(__name__)

__all__ = [
    "Answer",
    "Catalog",
    "Embedder",
    "Match",
    "Network",
    "Product",
    "Threshold",
    "UserError",
    "__version__",
    "evaluate",
    "head",
    "index",
    "loss",
    "pooling",
    "train",
]
