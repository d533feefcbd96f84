"""retrieval-SfM-120k (Radenovic, Tolias, Chum, TPAMI 2019): photographs of places, with the pairs that show
the same surface, from 3D models.

    retrieval-SfM-120k.pkl      {"train": part, "val": part}, part = {"cids": names, "cluster": 3D model of
    each image,
                                 "qidxs": images, "pidxs": for each of them an image that matches it}
    ims/2f/1e/d0/...d01e2f      the image of a name: its last two, the two before, the two before these, the
    name; JPEG without a suffix

91,642 train images of 551 models and 6,403 validation images of 162 others: 98,045 of the "120k", which count
validation images that nobody uses. The validation part is the test split of the shards. The class of an image
is its model, and its group too: images of one model need not show the same side of it, so training draws
positives from the pairs and negatives from other models (IRT section 4.2, cnnimageretrieval-pytorch).

pairs.parquet: split (train, test), query, positive (row ids), in the order of the pickle; a query stands
there once for each of its positives.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from pipeline.config.dataset import Sfm120kSource
from pipeline.ingest.census import Count, require_counts
from pipeline.ingest.collection import Collection, Picture, RowOf
from pipeline.ingest.files.archive import leaves_its_folder
from pipeline.ingest.files.tree import Tree
from pipeline.ingest.files.unpickle import Node, load
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

COUNTS = {"train": Count(91_642, 551), "test": Count(6_403, 162)}
PARTS = {"train": "train", "test": "val"}
_DATABASE = "retrieval-SfM-120k.pkl"
_REMEDY = f"Fetch it again from {PUBLISHED['sfm120k'].page}."


class Part(NamedTuple):
    """One part of the database."""

    images: list[str]  # paths below the folder of images
    models: Int[np.ndarray, " images"]
    queries: Int[np.ndarray, " pairs"]
    positives: Int[np.ndarray, " pairs"]


def collection(source: Sfm120kSource, scratch: Path) -> Collection:
    """The pictures, named by their path below the folder of images. Raises UserError when a file is missing
    or the set is not this one."""
    published, root = PUBLISHED["sfm120k"], Path(source.path)
    if not (root / _DATABASE).is_file():
        raise not_there("sfm120k", root, f"holds no {_DATABASE}")
    database = load(root / _DATABASE, _REMEDY)
    parts = {split: _part(database[name]) for split, name in PARTS.items()}
    pictures = [
        Picture(image, f"{PARTS[split]}/{model:05d}", split, group=f"{PARTS[split]}/{model:05d}")
        for split, part in parts.items()
        for image, model in zip(part.images, part.models.tolist(), strict=True)
    ]
    if len({picture.source for picture in pictures}) < len(pictures):
        raise UserError(f"{root / _DATABASE}: an image is in both parts.", _REMEDY)
    require_counts(pictures, COUNTS, str(root / _DATABASE), published.title, _REMEDY)
    tree = Tree(root, published, scratch)
    images = tree.below(pictures[0].source)
    if images is None:
        raise not_there(
            "sfm120k",
            root,
            f"holds neither ims.tar.gz nor {pictures[0].source}, the first image that {_DATABASE} lists",
        )
    images.require((picture.source for picture in pictures), _DATABASE)
    across = {
        split: int((part.models[part.queries] != part.models[part.positives]).sum())
        for split, part in parts.items()
    }
    facts = {
        "published": published.title,
        "pairs": {split: len(part.queries) for split, part in parts.items()},
        "pairs_across_models": across,
    }
    return Collection(str(root), pictures, images.read, facts, {"pairs": _pairs(parts)})


def path_of(cid: str) -> str:
    """The path of an image below the folder of images."""
    return f"{cid[-2:]}/{cid[-4:-2]}/{cid[-6:-4]}/{cid}"


def _part(part: Node) -> Part:
    cids = part["cids"].names()
    for cid in cids:
        if len(cid) < 6 or "/" in cid or leaves_its_folder(path_of(cid)):
            raise UserError(f"{part.where}['cids'] names {cid!r}.", part.remedy)
    models = part["cluster"].integers(2**31)
    queries, positives = (part[key].integers(len(cids)) for key in ("qidxs", "pidxs"))
    if len(models) != len(cids) or len(queries) != len(positives):
        found = (
            f"{len(cids):,} cids and {len(models):,} clusters, {len(queries):,} qidxs and "
            f"{len(positives):,} pidxs"
        )
        raise UserError(f"{part.where} has {found}.", part.remedy)
    return Part([path_of(cid) for cid in cids], models, queries, positives)


def _pairs(parts: dict[str, Part]) -> Callable[[RowOf], pa.Table]:
    def table(row_of: RowOf) -> pa.Table:
        columns: dict[str, list[np.ndarray]] = {"query": [], "positive": []}
        for part in parts.values():
            rows = np.array([row_of(image) for image in part.images], np.int64)
            columns["query"].append(rows[part.queries])
            columns["positive"].append(rows[part.positives])
        splits = [split for split, part in parts.items() for _ in range(len(part.queries))]
        return pa.table(
            {
                "split": pa.array(splits, pa.string()),
                **{name: np.concatenate(values) for name, values in columns.items()},
            }
        )

    return table
