"""retrieval-SfM-120k (Radenovic, Tolias, Chum, TPAMI 2019): photographs of places, with pairs of images that
show the same surface, from 3D models.

    retrieval-SfM-120k.pkl    {"train": part, "val": part}, each part is a dict:
                              "cids": names of the images, "cluster": the 3D model of each image,
                              "qidxs": query images, "pidxs": a matching image for each of them
    ims/2f/1e/d0/...d01e2f    the image of a name: characters [-2:], [-4:-2] and [-6:-4], then the name;
                              JPEG without a suffix

91,642 train images of 551 models and 6,403 validation images of 162 other models. The "120k" also count
validation images that are not used. The validation part is the test split of the shards. The class of an
image, and also its group, is its model. Images of one model may show different sides of it, so training takes
positives from the pairs and negatives from other models (IRT section 4.2, cnnimageretrieval-pytorch).

pairs.parquet: split (train, test), query, positive (row ids), in the order of the pickle. A query has one row
for each of its positives.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from unseen.data.ingest.census import Count, require_counts
from unseen.data.ingest.collection import Collection, Picture, RowOf
from unseen.data.ingest.files.archive import leaves_its_folder
from unseen.data.ingest.files.tree import Tree
from unseen.data.ingest.files.unpickle import Node, load
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import Sfm120kSource
from unseen.runtime.errors import UserError

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
    """The pictures, named by their path below the folder of images. Raises UserError if a file is missing or
    the set is not the published one."""
    published, root = PUBLISHED["sfm120k"], Path(source.path)
    if not (root / _DATABASE).is_file():
        raise missing_data_error("sfm120k", root, f"contains no {_DATABASE}")
    database = load(root / _DATABASE, _REMEDY)
    parts = {split: _part(database[name]) for split, name in PARTS.items()}
    pictures = []
    for split, part in parts.items():
        for image, model in zip(part.images, part.models.tolist(), strict=True):
            class_name = f"{PARTS[split]}/{model:05d}"
            pictures.append(Picture(image, class_name, split, group=class_name))
    if len({picture.source for picture in pictures}) < len(pictures):
        raise UserError(f"{root / _DATABASE}: an image is in both parts.", _REMEDY)
    require_counts(pictures, COUNTS, str(root / _DATABASE), published.title, _REMEDY)
    tree = Tree(root, published, scratch)
    first_image = pictures[0].source
    images = tree.below(first_image)
    if images is None:
        problem = f"contains neither ims.tar.gz nor {first_image}, the first image in {_DATABASE}"
        raise missing_data_error("sfm120k", root, problem)
    images.require((picture.source for picture in pictures), _DATABASE)
    facts = {
        "published": published.title,
        "pairs": {split: len(part.queries) for split, part in parts.items()},
        "pairs_across_models": {
            split: int((part.models[part.queries] != part.models[part.positives]).sum())
            for split, part in parts.items()
        },
    }
    return Collection(str(root), pictures, images.read, facts, {"pairs": _pairs(parts)})


def path_of(cid: str) -> str:
    """The path of an image below the folder of images."""
    return f"{cid[-2:]}/{cid[-4:-2]}/{cid[-6:-4]}/{cid}"


def _part(part: Node) -> Part:
    cids = part["cids"].names()
    for cid in cids:
        if len(cid) < 6 or "/" in cid or leaves_its_folder(path_of(cid)):
            raise UserError(f"{part.location}['cids'] contains {cid!r}, which is not a name.", part.remedy)
    models = part["cluster"].integers(2**31)
    queries, positives = (part[key].integers(len(cids)) for key in ("qidxs", "pidxs"))
    if len(models) != len(cids) or len(queries) != len(positives):
        raise UserError(
            f"{part.location} has {len(cids):,} cids and {len(models):,} clusters, "
            f"{len(queries):,} qidxs and {len(positives):,} pidxs.",
            part.remedy,
        )
    return Part([path_of(cid) for cid in cids], models, queries, positives)


def _pairs(parts: dict[str, Part]) -> Callable[[RowOf], pa.Table]:
    def table(row_of: RowOf) -> pa.Table:
        columns: dict[str, list[np.ndarray]] = {"query": [], "positive": []}
        for part in parts.values():
            rows = np.array([row_of(image) for image in part.images], np.int64)
            columns["query"].append(rows[part.queries])
            columns["positive"].append(rows[part.positives])
        splits = [split for split, part in parts.items() for _ in range(len(part.queries))]
        arrays = {name: np.concatenate(values) for name, values in columns.items()}
        return pa.table({"split": pa.array(splits, pa.string()), **arrays})

    return table
