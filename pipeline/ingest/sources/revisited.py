"""Revisited Oxford and Paris (Radenovic et al., CVPR 2018): 70 queries, each the box of a landmark in a
photograph, against a database.

    gnd_roxford5k.pkl       {"imlist": names of the 4,993 database images (Paris: 6,322), "qimlist": names of
    the 70 queries,
                             "gnd": for each query {"bbx": [x0, y0, x1, y1], "easy": [...], "hard": [...],
                             "junk": [...]}, indices into imlist}
    *.jpg                   in any folder: those of oxbuild_images-v1.tgz; paris_1-v1.tgz and paris_2-v1.tgz

Everything is test, nothing is for training. Which images match is said query by query, so there are no
classes: all rows have one label, which means nothing, and the sets are judged by ground_truth.parquet alone.
Queries are no database images. Images of the archives that neither list names (the other images of Paris are
damaged) are left out. The box is published in pixels of the file, and may reach over its edge.

ground_truth.parquet: query, easy, hard, junk (row ids; the last three lists), in the order of the pickle.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from pipeline.config.dataset import RoxfordSource, RparisSource
from pipeline.ingest.collection import Box, Collection, Picture, RowOf
from pipeline.ingest.files.tree import Tree
from pipeline.ingest.files.unpickle import Node, load
from pipeline.ingest.releases import PUBLISHED, not_there
from pipeline.runtime.errors import UserError

DATABASE = {"roxford5k": 4_993, "rparis6k": 6_322}
QUERIES = 70
RELEVANCE = ("easy", "hard", "junk")


class Truth(NamedTuple):
    """Of one query."""

    box: Box
    relevance: dict[str, Int[np.ndarray, " n"]]  # indices of database images


def collection(source: RoxfordSource | RparisSource, scratch: Path) -> Collection:
    """The queries and the database, named by their files. Raises UserError when a file is missing or the
    ground truth is not the published one."""
    published, root = PUBLISHED[source.kind], Path(source.path)
    file = root / f"gnd_{source.kind}.pkl"
    if not file.is_file():
        raise not_there(source.kind, root, f"holds no {file.name}")
    remedy = f"Fetch it again from {published.page}."
    truth = load(file, remedy)
    database, queries, gnd = truth["imlist"].names(), truth["qimlist"].names(), truth["gnd"].items()
    if (len(database), len(queries), len(gnd)) != (DATABASE[source.kind], QUERIES, QUERIES):
        found = f"{len(database):,} database images, {len(queries)} queries and {len(gnd)} ground truths"
        raise UserError(
            f"{file} is not {published.title}: found {found}; it has {DATABASE[source.kind]:,}, {QUERIES} "
            f"and {QUERIES}.",
            remedy,
        )
    if both := set(database) & set(queries):
        raise UserError(f"{file}: {min(both)} is a query and a database image.", remedy)
    truths = [_truth(item, len(database)) for item in gnd]
    tree = Tree(root, published, scratch)
    files = Photographs(tree, _places(tree))
    if missing := [name for name in queries + database if f"{name}.jpg" not in files.places]:
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise not_there(
            source.kind, root, f"lacks {len(missing):,} of the images that {file.name} names: {shown}"
        )
    pictures = [
        Picture(f"{name}.jpg", source.kind, "test", True, False, box=item.box)
        for name, item in zip(queries, truths, strict=True)
    ]
    pictures += [Picture(f"{name}.jpg", source.kind, "test", False, True) for name in database]
    others = len(files.places) - len(pictures)
    facts = {"published": published.title, "other_images": others}
    return Collection(
        str(root), pictures, files, facts, {"ground_truth": _table(database, queries, truths)}, by_class=False
    )


class Photographs:
    """The files of the pictures, whatever folders and archives they lie in."""

    def __init__(self, tree: Tree, places: dict[str, str]) -> None:
        self.tree, self.places = tree, places

    def __call__(self, source: str) -> bytes:
        return self.tree.read(self.places[source])


def _places(tree: Tree) -> dict[str, str]:
    """The whole name of each photograph by its last part; of two, as where an archive lies beside what it
    holds, the one in fewer folders."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in tree.names():
        if name.endswith(".jpg"):
            found[PurePosixPath(name).name].append(name)
    return {base: min(names, key=lambda name: (name.count("/"), name)) for base, names in found.items()}


def _truth(gnd: Node, database: int) -> Truth:
    x0, y0, x1, y1 = gnd["bbx"].floats(4)
    relevance = {kind: gnd[kind].integers(database) for kind in RELEVANCE}
    every = np.concatenate(list(relevance.values()))
    if len(np.unique(every)) < len(every):
        raise UserError(f"{gnd.where}: an image stands in easy, hard and junk more than once.", gnd.remedy)
    return Truth((x0, y0, x1, y1), relevance)


def _table(database: list[str], queries: list[str], truths: list[Truth]) -> Callable[[RowOf], pa.Table]:
    def table(row_of: RowOf) -> pa.Table:
        rows = np.array([row_of(f"{name}.jpg") for name in database], np.int64)
        columns = {
            kind: pa.array([rows[truth.relevance[kind]].tolist() for truth in truths], pa.list_(pa.int64()))
            for kind in RELEVANCE
        }
        return pa.table(
            {"query": pa.array([row_of(f"{name}.jpg") for name in queries], pa.int64()), **columns}
        )

    return table
