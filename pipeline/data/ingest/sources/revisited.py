"""Revisited Oxford and Paris (Radenovic et al., CVPR 2018): 70 queries against a database. Each query is the
box of a landmark in a photograph.

    gnd_roxford5k.pkl    {"imlist": names of the 4,993 database images (Paris: 6,322),
                          "qimlist": names of the 70 queries,
                          "gnd": for each query {"bbx": [x0, y0, x1, y1], "easy", "hard", "junk": [...]},
                                 the last three are indices into imlist}
    *.jpg                in any folder, from oxbuild_images-v1.tgz, or from paris_1-v1.tgz and paris_2-v1.tgz

All images are test. The ground truth lists the matching images of each query, so there are no classes: all
rows have one label without meaning, and only ground_truth.parquet is used for evaluation. No query is a
database image. Images of the archives that neither list names (those of Paris are damaged) are excluded.
Boxes are in pixels of the file, and may extend beyond the image.

ground_truth.parquet: query, easy, hard, junk (row ids; the last three are lists), in the order of the pickle.
"""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from jaxtyping import Int

from unseen.data.ingest.collection import Box, Collection, Picture, RowOf
from unseen.data.ingest.files.tree import Tree
from unseen.data.ingest.files.unpickle import Node, load
from unseen.data.ingest.releases import PUBLISHED, missing_data_error
from unseen.data.ingest.settings import RoxfordSource, RparisSource
from unseen.runtime.errors import UserError

DATABASE = {"roxford5k": 4_993, "rparis6k": 6_322}
QUERIES = 70
RELEVANCE = ("easy", "hard", "junk")


class Truth(NamedTuple):
    """The ground truth of one query."""

    box: Box
    relevance: dict[str, Int[np.ndarray, " n"]]  # indices of database images


def collection(source: RoxfordSource | RparisSource, scratch: Path) -> Collection:
    """The queries and the database, named by their files. Raises UserError if a file is missing or the ground
    truth is not the published one."""
    kind, root = source.kind, Path(source.path)
    file = root / f"gnd_{kind}.pkl"
    if not file.is_file():
        raise missing_data_error(kind, root, f"contains no {file.name}")
    database, queries, truths = _ground_truth(file, kind)
    tree = Tree(root, PUBLISHED[kind], scratch)
    files = Photographs(tree, _paths(tree))
    if missing := [name for name in queries + database if f"{name}.jpg" not in files.paths]:
        first = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        problem = f"lacks {len(missing):,} of the images that {file.name} names: {first}"
        raise missing_data_error(kind, root, problem)
    pictures = [
        Picture(f"{name}.jpg", kind, "test", True, False, box=truth.box)
        for name, truth in zip(queries, truths, strict=True)
    ]
    pictures += [Picture(f"{name}.jpg", kind, "test", False, True) for name in database]
    facts = {"published": PUBLISHED[kind].title, "other_images": len(files.paths) - len(pictures)}
    extras = {"ground_truth": _table(database, queries, truths)}
    return Collection(str(root), pictures, files, facts, extras, by_class=False)


def _ground_truth(file: Path, kind: str) -> tuple[list[str], list[str], list[Truth]]:
    """The names of the database images and of the queries, and the ground truth of each query."""
    published = PUBLISHED[kind]
    remedy = f"Fetch it again from {published.page}."
    root = load(file, remedy)
    database, queries, gnd = root["imlist"].names(), root["qimlist"].names(), root["gnd"].items()
    if (len(database), len(queries), len(gnd)) != (DATABASE[kind], QUERIES, QUERIES):
        raise UserError(
            f"{file} is not {published.title}: "
            f"found {len(database):,} database images, {len(queries)} queries and {len(gnd)} ground truths; "
            f"expected {DATABASE[kind]:,}, {QUERIES} and {QUERIES}.",
            remedy,
        )
    if both := set(database) & set(queries):
        raise UserError(f"{file}: {min(both)} is a query and a database image.", remedy)
    return database, queries, [_truth(node, len(database)) for node in gnd]


class Photographs:
    """Reads the files of the pictures from any folder or archive of the set."""

    def __init__(self, tree: Tree, paths: dict[str, str]) -> None:
        self.tree, self.paths = tree, paths

    def __call__(self, source: str) -> bytes:
        return self.tree.read(self.paths[source])


def _paths(tree: Tree) -> dict[str, str]:
    """The path of each photograph in the tree, by its file name. If there are several, as for an archive
    beside its content, the path with the fewest folders."""
    paths: dict[str, list[str]] = defaultdict(list)
    for path in tree.names():
        if path.endswith(".jpg"):
            paths[PurePosixPath(path).name].append(path)
    return {name: min(same, key=lambda path: (path.count("/"), path)) for name, same in paths.items()}


def _truth(gnd: Node, database: int) -> Truth:
    x0, y0, x1, y1 = gnd["bbx"].floats(4)
    relevance = {kind: gnd[kind].integers(database) for kind in RELEVANCE}
    images = np.concatenate(list(relevance.values()))
    if len(np.unique(images)) < len(images):
        raise UserError(f"{gnd.location}: an image is in easy, hard and junk more than once.", gnd.remedy)
    return Truth((x0, y0, x1, y1), relevance)


def _table(database: list[str], queries: list[str], truths: list[Truth]) -> Callable[[RowOf], pa.Table]:
    def table(row_of: RowOf) -> pa.Table:
        rows = np.array([row_of(f"{name}.jpg") for name in database], np.int64)
        columns = {
            kind: pa.array([rows[truth.relevance[kind]].tolist() for truth in truths], pa.list_(pa.int64()))
            for kind in RELEVANCE
        }
        query_rows = pa.array([row_of(f"{name}.jpg") for name in queries], pa.int64())
        return pa.table({"query": query_rows, **columns})

    return table
